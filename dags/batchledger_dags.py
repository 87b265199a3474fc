"""Batchledger's DAGs for Airflow: one for each pipeline file, and three for upkeep."""

from batchledger.interfaces.airflow.dags import build_dags

globals().update(build_dags())
