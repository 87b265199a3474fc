"""``batchledger check``: every mistake of every file with its exact place, by the reader that DAGs and commands use."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from batchledger.cli import app
from batchledger.config import pipeline_file
from batchledger.config.documents import read_yaml
from batchledger.config.extras import MODULE_BY_EXTRA
from batchledger.config.faults import MOST_FAULTS
from batchledger.config.json_schema import make_schema
from batchledger.config.pipeline_file import load_pipeline, read_pipeline_file
from batchledger.model.errors import ConfigurationError, FileRefusedError
from tests.contract.test_light_commands import LOOK, run
from tests.unit.test_config import GOOD, REFUSED, changed, write
from tests.unit.test_json_schema import SAMPLES, TAKEN

HEAD = 'name: orders\nsource:\n  topics: [orders]\n  schema: "id string, amount double"\n'
SINK = "sink: {table: orders}\n"


def check(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)], env=environment)


def list_places(folder: Path, text: str) -> list[str]:
    """Line, column and the first words of each mistake."""
    path = folder / "orders.yaml"
    path.write_text(text)
    with pytest.raises(FileRefusedError) as refused:
        read_pipeline_file(path)
    return [f"{each.line}:{each.column} {each.text}" for each in refused.value.faults]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (HEAD + SINK + "shedule: x\n", ["6:1 shedule: unknown key"]),
        (HEAD + "sink: {table: orders, kye: [id]}\n", ["5:23 sink.kye: unknown key"]),
        ("# first\nname: orders\n" + SINK, ["2:1 source: this key is required"]),
        ("name: orders\nsource:\n  topics: [a]\n" + SINK, ["2:1 source.schema: this key is required"]),
        (HEAD + "sink: {type: kafka}\n", ["5:1 sink.topic: this key is required"]),
        (HEAD + "sink: {table: orders,\n  mode: merge}\n", ["6:9 sink.mode: 'merge' is not allowed"]),
        (HEAD + "sink:\n  type: hive\n", ["6:9 sink.type: 'hive' is not allowed"]),
        (HEAD + "sink:\n  table:\n    a: b\n", ["6:3 sink.table: a mapping: write a text"]),
        (HEAD + SINK + "alerts:\n- ops\n- a b\n", ["8:3 alerts.1: 'a b': write the id"]),
        (HEAD + SINK + "alerts: ops\n", ["6:9 alerts: 'ops': write a list: alerts: [ops]"]),
        (HEAD + SINK + "limits: 5\n", ["6:9 limits: 5: write its keys below it"]),
        (HEAD + SINK + "limits:\n", ["6:8 limits: None: write its keys below it"]),
        (HEAD + SINK + "limits: {max_records: '5'}\n", ["6:23 limits.max_records: '5': write a whole number"]),
        (HEAD.replace("id string", "id strin") + SINK, ["4:11 source.schema: 'id strin, amount double'"]),
        # A rule about several keys is at the key that it names first, else at its section.
        (HEAD + "sink: {table: orders, mode: upsert, key: [ids]}\n", ["5:37 sink.key: 'ids' is not a column"]),
        (HEAD + "sink: {table: orders, mode: upsert}\n", ["5:1 sink: mode upsert needs key"]),
        (HEAD + "  format: avro\n" + SINK, ["5:11 source: format: avro needs registry"]),
        (HEAD + "  tombstones: delete\n" + SINK, ["5:15 source.tombstones: delete needs a sink"]),
        (HEAD + SINK + "ledger: elsewhere\n", ["6:9 ledger: 'elsewhere': the ledger is where"]),
        # Checks are counted as the file has them: the suite is one entry of two checks.
        (
            HEAD + SINK + "checks:\n  - suite: two.json\n  - {type: expect_nothing}\n",
            ["8:12 checks.1: type: 'expect_nothing' is not an"],
        ),
        (
            HEAD + SINK + "checks:\n  - suite: two.json\n  - suite: bad.json\n",
            ["8:5 checks.1: expect_column_to_exist needs the argument"],
        ),
        (
            HEAD + SINK + "checks:\n  - suite: none.json\n",
            ["6:1 checks: [a mapping]: suite 'none.json' is not a suite"],
        ),
        # What an alias or a merge brings is where it is written.
        (
            HEAD + SINK + "limits: &a {max_records: x}\nhistory: {<<: *a}\n",
            ["6:13 history.max_records", "6:26 limits.max"],
        ),
        (HEAD + SINK + "history: {<<: {keep: 9d}, keep: soon}\n", ["6:33 history.keep: 'soon'"]),
        ("name: payments\n" + HEAD.partition("\n")[2] + SINK, ["1:7 name: 'payments' differs from the file name"]),
        ("name: orders\nname: x\n", ["2:1 not readable as YAML: key 'name' appears twice"]),
        ("schedule: */5 * * * *\n", ["1:12 not readable as YAML: expected alphabetic"]),
        ("a: [\n", ["2:1 not readable as YAML: expected the node content"]),
        ("", ["1:1 not a pipeline: it has no keys"]),
        ("\n- a list\n", ["2:1 not a pipeline: it has no keys"]),
        ("name: ü\nsource: 'ä', b\n", ["2:12 not readable as YAML"]),
        # Several mistakes come in the order of their lines.
        (
            "name: Orders\nsource: {topics: []}\n" + SINK + "zzz: 1\nalerts: [a b]\n",
            ["1:7 name", "2:1 source.schema", "2:10 source.topics: []: write at least one", "4:1 zzz", "5:10 alerts.0"],
        ),
    ],
)
def test_each_mistake_has_its_line_and_column(tmp_path: Path, text: str, places: list[str]) -> None:
    two = [{"type": "expect_column_to_exist", "kwargs": {"column": each}} for each in ("id", "amount")]
    (tmp_path / "two.json").write_text(json.dumps({"expectations": two}))
    (tmp_path / "bad.json").write_text(json.dumps({"expectations": [*two, {"type": "expect_column_to_exist"}]}))
    found = list_places(tmp_path, text)
    assert len(found) == len(places), found
    assert [each for each, expected in zip(found, places, strict=True) if not each.startswith(expected)] == []


def test_place_that_leads_nowhere_is_what_is_around_it(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("{a: [x, {b: 1}]}")
    document = read_yaml(path)
    assert [document.locate(place) for place in (["a", 1, "b"], ["a", 1, "c"], ["a", 9], ["z"])] == [
        *((1, 13), (1, 9), (1, 2), (1, 1))
    ]
    assert document.locate_key(["a", 1, "b"]) == (1, 10)


def find_refusal(pipeline: str) -> ConfigurationError | None:
    try:
        load_pipeline(pipeline)
    except ConfigurationError as refused:
        return refused
    return None


@pytest.mark.parametrize("content", [*(each for each, _ in REFUSED), *TAKEN])
def test_check_takes_what_a_command_takes_and_nothing_else(
    tmp_path: Path, content: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suite.json").write_text('{"expectations": []}')
    path = write(tmp_path, content)
    monkeypatch.setenv(pipeline_file.PIPELINES_VARIABLE, str(tmp_path))
    done, refused = check(path), find_refusal("orders")
    expected = (2, f"{refused.message}\n") if refused else (0, "1 file checked: no mistake.\n")
    assert (done.exit_code, done.stdout[: len(expected[1])]) == expected


def test_every_sample_is_right() -> None:
    done = check(*SAMPLES)
    assert (done.exit_code, done.stdout) == (0, f"{len(SAMPLES)} files checked: no mistake.\n")


def test_every_file_is_checked_and_each_mistake_is_one_line_however_narrow_the_terminal_is(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name, text in {"a": "zzz: 1", "b": yaml.safe_dump({**GOOD, "name": "b"}), "c": "c: ["}.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "left.yml").write_text("no pipeline file by its name")
    done = check(folder, folder / "a.yaml", COLUMNS="40")
    lines = done.stdout.splitlines()
    assert done.exit_code == 2
    assert [each.partition(" ")[0] for each in lines[:5]] == [
        *[f"{folder}/a.yaml:1:1:"] * 4,
        f"{folder}/c.yaml:1:5:",
    ]
    assert lines[5] == "2 of 3 files refused: 5 mistakes."
    assert [each.startswith("Correct the file.") for each in lines[6:]] == [True, True]


def test_document_has_each_mistake_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + SINK + "zzz: 1\n")
    done = check(path, "--json")
    (found,) = json.loads(done.stdout)
    (mistake,) = found["mistakes"]
    assert (done.exit_code, found["file"], found["notes"]) == (2, str(path), [])
    assert (mistake["line"], mistake["column"], mistake["text"].partition(";")[0]) == (6, 1, "zzz: unknown key 'zzz'")


def test_first_mistakes_of_a_file_are_listed_and_the_others_counted(tmp_path: Path) -> None:
    path = write(tmp_path, changed(**{f"unknown_{each}": 1 for each in range(MOST_FAULTS + 5)}))
    lines = check(path).stdout.splitlines()
    assert len(lines) == MOST_FAULTS + 3
    assert lines[MOST_FAULTS] == f"{path}:1:1: and 5 faults more"


def test_without_a_file_the_folder_of_all_pipelines_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "zzz: 1")
    monkeypatch.setenv(pipeline_file.PIPELINES_VARIABLE, str(tmp_path))
    assert check().exit_code == 2
    write(tmp_path, GOOD)
    assert (check().exit_code, check().stdout) == (0, "1 file checked: no mistake.\n")


def test_folder_without_a_pipeline_file_and_a_file_that_is_not_there_are_no_success(tmp_path: Path) -> None:
    """A hook that checks nothing would stay green for good."""
    refused = check(tmp_path).exception
    assert isinstance(refused, ConfigurationError)
    assert refused.message == f"There is no pipeline file in {tmp_path}."
    gone = check(tmp_path / "gone.yaml")
    assert gone.exit_code == 2
    assert f"{tmp_path}/gone.yaml:1:1: cannot be read: No such file or directory" in gone.stdout


def test_file_that_no_command_would_find_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders.yml"
    path.write_text(yaml.safe_dump(GOOD))
    assert "name: 'orders' differs from the file name; call the file orders.yaml" in check(path).stdout


def test_copied_file_in_which_the_name_was_forgotten_is_refused_at_the_name(tmp_path: Path) -> None:
    """So no two files of a folder have one name."""
    write(tmp_path, HEAD + SINK)
    (tmp_path / "orders_2.yaml").write_text(HEAD + SINK)
    done = check(tmp_path)
    assert done.exit_code == 2
    assert done.stdout.startswith(f"{tmp_path}/orders_2.yaml:1:7: name: 'orders' differs from the file name")


def test_missing_extra_is_a_line_of_its_own_and_no_mistake_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, HEAD + "sink: {type: iceberg, table: shop.orders}\n")
    assert check(path).stdout == "1 file checked: no mistake.\n"
    monkeypatch.setitem(sys.modules, MODULE_BY_EXTRA["iceberg"], None)  # type: ignore[arg-type]
    done = check(path)
    note, last = done.stdout.splitlines()
    assert (done.exit_code, last) == (0, "1 file checked: no mistake.")
    assert note.startswith(f"{path}:5:14: sink.type: iceberg needs the extra 'iceberg'")
    assert 'pip install "airflow-provider-batchledger[iceberg]"' in note
    with pytest.raises(ConfigurationError):
        read_pipeline_file(path)


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_schema_is_printed_as_it_is(arguments: tuple[str, ...]) -> None:
    done: Any = check("--schema", *arguments, COLUMNS="40")
    assert (done.exit_code, json.loads(done.stdout)) == (0, make_schema())
    assert check("--schema", "orders.yaml").exit_code == 2


def test_check_imports_what_reads_a_file_and_no_library_of_a_service_but_the_one_that_every_command_has(
    tmp_path: Path,
) -> None:
    assert {*run(tmp_path, "check", str(write(tmp_path, GOOD))).packages} - LOOK == set()
