"""How messages reach people: one module a kind of Airflow connection. Each only delivers messages."""
