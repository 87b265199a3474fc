"""A DAG of one's own, as Airflow reads it: what it names, and what it costs."""

from pathlib import Path

from tests.dags.parsing import parse

DAG_FILE = """
from airflow.sdk import DAG
from batchledger.airflow import BatchledgerTaskGroup, Pipeline, Source, Table

orders = Pipeline("orders", source=Source(topics=["raw"], schema="id bigint"), sink=Table(table="shop.orders"))
with DAG("nightly", schedule=None):
    BatchledgerTaskGroup("load", pipeline=orders)
"""
REPORT = """
import pathlib, sys
from airflow.dag_processing.dagbag import DagBag
before, opened = set(sys.modules), []
sys.addaudithook(lambda event, found: opened.append(str(found[0])) if event == "open" else None)
bag = DagBag(collect_dags=False)
bag.process_file({file!r}, only_if_updated=False)
publish = bag.dags["nightly"].get_task("load.publish")
report = {{
    "errors": bag.import_errors,
    "assets": [[each.name for each in publish.inlets], [each.name for each in publish.outlets]],
    "modules": sorted(set(sys.modules) - before),
    "opened": [each for each in opened if each.endswith(".yaml")],
}}
"""


def test_assets_of_a_pipeline_in_python_are_known_without_its_file_which_is_not_read(tmp_path: Path) -> None:
    dag_file, folder = tmp_path / "nightly.py", tmp_path / "pipelines"
    dag_file.write_text(DAG_FILE)
    folder.mkdir()
    for text in (None, "name: [", "sink: {table: another}\nsource: {topics: [another]}"):
        if text is not None:
            (folder / "orders.yaml").write_text(text)
        report = parse(folder, REPORT.format(file=str(dag_file)))
        assert report["errors"] == {}
        assert report["assets"] == [["kafka_default/raw"], ["warehouse/shop.orders"]]
        assert report["opened"] == []
    heavy = {"pyspark", "confluent_kafka", "great_expectations", "psycopg", "pyarrow", "jsonschema"}
    assert heavy.isdisjoint(report["modules"])


def test_negative_control_the_file_of_a_name_is_read(tmp_path: Path) -> None:
    dag_file = tmp_path / "nightly.py"
    dag_file.write_text(DAG_FILE.replace("pipeline=orders", 'pipeline="orders"'))
    (tmp_path / "orders.yaml").write_text("sink: {table: another}\nsource: {topics: [other]}")
    report = parse(tmp_path, REPORT.format(file=str(dag_file)))
    assert report["assets"] == [["kafka_default/other"], ["warehouse/public.another"]]
    assert report["opened"] == [str(tmp_path / "orders.yaml")]
