"""What the DAGs are made of: tasks, timetables, the form, links, and what the scheduler loads before it forks."""
