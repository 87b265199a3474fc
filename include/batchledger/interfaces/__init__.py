"""Where people and schedulers meet the product: Airflow, the command line, the page, Data Docs."""
