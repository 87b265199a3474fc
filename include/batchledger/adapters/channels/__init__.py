"""How messages reach people: one module a kind of Airflow connection. Each knows only how to deliver a message."""
