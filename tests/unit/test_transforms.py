"""The transform of a pipeline file: SQL, or a function of a module beside the file or an installed one."""

import sys
from pathlib import Path
from typing import Any

import pytest

from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.model.errors import ConfigurationError
from batchledger.model.records.row_query import RowQuery
from batchledger.model.records.transforms import PythonTransform
from tests.unit.test_config import changed, write

TEXT = "def change(rows):\n    return rows\n"


def find(folder: Path, transform: object, **changes: Any) -> object:
    return read_pipeline_file(write(folder, changed(transform=transform, **changes))).row_transform


def refuse(folder: Path, transform: object, **changes: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        find(folder, transform, **changes)
    return refused.value.message


def test_sql_is_taken_apart_when_the_file_is_read(tmp_path: Path) -> None:
    found = find(tmp_path, {"sql": "select id, amount * 2 as twice from rows where amount > 0"})
    assert isinstance(found, RowQuery)
    assert (found.names, found.condition, str(found)) == (("id", "twice"), "amount > 0", "sql")


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        ({"sql": "select id\nfrom rows\nlimit 3"}, "transform.sql: line 3, column 1: no LIMIT is allowed"),
        ({"sql": "select amuont from rows"}, "transform.sql: line 1, column 8: rows has no column 'amuont'; did you"),
        ({"sql": "select _deleted from rows"}, "rows has no column '_deleted'"),
        ({"sql": 5}, "transform: write module:function, such as shop.orders:clean, or SQL"),
        ({"sql": "select id from rows", "python": "a:b"}, "transform: write module:function"),
        ({}, "transform: write module:function"),
        ("no colon", "transform: 'no colon': write module:function"),
        (5, "transform: 5: write module:function"),
    ],
)  # fmt: skip
def test_transform_of_another_form_is_refused_when_the_file_is_read(
    tmp_path: Path, transform: object, words: str
) -> None:
    assert words in refuse(tmp_path, transform)


def test_sql_sees_the_columns_that_rows_have(tmp_path: Path) -> None:
    sql = {"sql": "select id, tenant, _deleted, day(_timestamp) as day from rows"}
    more = {
        "source__tombstones": "delete",
        "source__headers": {"tenant": "header tenant string"},
        "source__protect": {"amount": "drop"},
        "sink__mode": "upsert",
        "sink__key": ["id"],
    }
    assert isinstance(find(tmp_path, sql, **more), RowQuery)
    assert "rows has no column 'amount'" in refuse(tmp_path, {"sql": "select amount from rows"}, **more)


def test_module_beside_the_file_is_found_and_read(tmp_path: Path) -> None:
    (tmp_path / "orders_rows.py").write_text(TEXT)
    found = find(tmp_path, "orders_rows:change")
    assert found == PythonTransform("orders_rows:change", tmp_path / "orders_rows.py", TEXT)


def test_module_that_lies_nowhere_is_left_to_the_stage_step(tmp_path: Path) -> None:
    """Airflow's DAG processor may lack what its workers have."""
    assert find(tmp_path, "orders_rows:change") == PythonTransform("orders_rows:change", tmp_path / "orders_rows.py")
    assert find(tmp_path, "shop.orders:clean") == PythonTransform("shop.orders:clean")


@pytest.mark.parametrize("name", ["json", "sys", "yaml"])
def test_module_that_lies_in_two_places_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(TEXT)
    assert f"transform: module '{name}' lies beside the pipeline file, and Python finds another one" in refuse(
        tmp_path, f"{name}:change"
    )


def test_module_that_python_finds_beside_the_file_is_one_and_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow puts its DAGs folder on the path, and pipeline files may lie there."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "orders_rows_of_dags.py").write_text(TEXT)
    found = find(tmp_path, "orders_rows_of_dags:change")
    assert isinstance(found, PythonTransform)
    assert found.text == TEXT


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"def change(rows)\n", "transform: orders_rows.py is not Python: line 1"),
        (b"\xff", "transform: orders_rows.py cannot be read: it is not text in UTF-8 from line 1 on"),
        (b"#" * 300_000, "transform: orders_rows.py cannot be read: it has more than 256 KiB"),
        (b"a = " + b"(" * 5000 + b")" * 5000, "transform: orders_rows.py "),
    ],
    ids=["grammar", "bytes", "size", "depth"],
)
def test_module_that_cannot_be_read_is_refused_when_the_file_is_read(
    tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "orders_rows.py").write_bytes(content)
    assert words in refuse(tmp_path, "orders_rows:change")


def test_module_behind_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(TEXT)
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "orders_rows.py").symlink_to(tmp_path / "elsewhere.py")
    assert "it has to lie in the folder of the pipeline file" in refuse(folder, "orders_rows:change")


def read_rules(folder: Path, transform: object) -> str:
    return read_pipeline_file(write(folder, changed(transform=transform))).rules.row_rules


def test_other_sql_and_another_text_of_the_module_are_other_rules_of_rows(tmp_path: Path) -> None:
    """So a batch that was staged by the former one is staged again before it is published."""
    file = tmp_path / "orders_rows.py"
    rules = [read_rules(tmp_path, {"sql": f"select id as {name} from rows"}) for name in "ab"]  # noqa: S608
    rules.append(read_rules(tmp_path, "orders_rows:change"))
    for text in (TEXT, f"{TEXT}# more\n"):
        file.write_text(text)
        rules.append(read_rules(tmp_path, "orders_rows:change"))
    assert len(set(rules)) == 5
    assert read_rules(tmp_path, "orders_rows:change") == rules[-1]
