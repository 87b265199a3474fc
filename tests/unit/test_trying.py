"""``batchledger try``: records of a file become what a run makes of them, and a file says which rows are expected."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from batchledger.cli import app
from batchledger.config.faults import MOST_FAULTS
from batchledger.config.pipeline_file import find_pipeline_files, read_pipeline_file
from batchledger.formats.decoding.decoder import Protector, RecordDecoder
from batchledger.model.errors import ConfigurationError, FileRefusedError
from batchledger.model.records.columns import parse_columns
from batchledger.reading import TRIAL_SECRET, make_lone_decoder
from batchledger.trying import records as records_file
from batchledger.trying.expectation import read_expectation
from batchledger.trying.records import read_records
from batchledger.trying.trial import Trial, TriedCheck, try_records
from tests.avro import encode, frame, record_schema
from tests.conftest import ROOT
from tests.contract.test_light_commands import run
from tests.unit.test_config import changed, write

PACKAGE = ROOT / "include" / "batchledger"
AVRO_SAMPLE = PACKAGE / "local" / "samples" / "flights_avro.yaml"
ORDER = record_schema(id="string", amount="double")
AVRO = {"source__format": "avro", "source__schema": "id string, amount double"}
GOOD_LINE = '{"value": {"id": "a", "amount": 1.10}}'
MOMENT = "2026-01-01T00:00:00+00:00"


def write_lines(folder: Path, *lines: object) -> Path:
    path = folder / "orders.jsonl"
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines) + "\n")
    return path


def attempt(folder: Path, *lines: object, schema_file: Path | None = None, **changes: Any) -> Trial:
    """What a pipeline makes of lines."""
    pipeline = read_pipeline_file(write(folder, changed(**changes)))
    return try_records(pipeline, read_records(write_lines(folder, *lines), pipeline.source.topics), schema_file)


def declared(trial: Trial) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name[0] != "_"} for row in trial.rows]


def reasons(trial: Trial) -> list[tuple[int, str]]:
    return [(each.line, each.reason) for each in trial.quarantined]


def invoke(folder: Path, *arguments: object, **environment: str) -> Result:
    here = {"BATCHLEDGER_PIPELINES": str(folder), **environment}
    return CliRunner().invoke(app, ["try", *map(str, arguments)], env=here)


def refusal(path: Path) -> list[str]:
    with pytest.raises(FileRefusedError) as refused:
        read_records(path, ["orders"])
    return [f"{each.line}:{each.column}: {each.text}" for each in refused.value.faults]


def test_value_reaches_the_decoder_as_its_line_has_it(tmp_path: Path) -> None:
    values = [
        '{"amount": 1.10}',
        '{"amount":1e400, "id": "é\\u00e9"}',
        '{"id": "a", "id": "b"}',
        "[ 1,2 ]",
        "7",
        "true",
    ]
    path = write_lines(tmp_path, *(f'{{"key": {each}, "value":{each} }}' for each in values))
    found = read_records(path, ["orders"]).records
    assert found["value"].to_pylist() == found["key"].to_pylist() == [each.encode() for each in values]


def test_text_stands_for_its_bytes_and_base64_for_any(tmp_path: Path) -> None:
    headers = {"t": "blue", "none": None, "raw": {"base64": "AP8="}, "json": {"a": 1.10}}
    line = {"value": '{"base64": "AP8="}', "key": {"base64": "AP8="}, "headers": headers}
    (record,) = read_records(write_lines(tmp_path, line), ["orders"]).records.to_pylist()
    assert (record["value"], record["key"]) == (b'{"base64": "AP8="}', b"\x00\xff")
    told = {
        each["key"]: each.get("value") and base64.b64decode(each["value"]) for each in json.loads(record["headers"])
    }
    assert told == {"t": b"blue", "none": None, "raw": b"\x00\xff", "json": b'{"a": 1.1}'}


def test_record_without_more_than_a_value_has_a_place_and_a_fixed_moment(tmp_path: Path) -> None:
    own = {"value": 2, "topic": "b", "partition": 3, "offset": 9, "timestamp": 17}
    late = {"value": 3, "timestamp": "1970-01-01T00:00:01.5+00:00"}
    path = write_lines(tmp_path, {"value": 1}, "", own, late, {"value": None, "timestamp": None})
    found = read_records(path, ["a", "b"]).records
    places = [(each["topic"], each["partition"], each["offset"], each["timestamp_ms"]) for each in found.to_pylist()]
    assert places == [("a", 0, 0, 1_767_225_600_000), ("b", 3, 9, 17), ("a", 0, 3, 1500), ("a", 0, 4, -1)]


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ('{"vlue": 1}', "1: the line contains unknown field `vlue`"),
        ("{}", "1: the line missing required field `value`"),
        ("7", "1: Expected `object`, got `int`"),
        ('{"value": é}', "11: the line is not one JSON object"),
        ('{"value": 1} 2', "15: the line is not one JSON object"),
        ('{"value": NaN}', "11: the line is not one JSON object"),
        ('{"value": 1, "value": 2}', "1: 'value' is given twice"),
        ('{"value": 1, "headers": {"a": "1", "b": "2", "a": "3"}}', "1: headers: 'a' is given twice"),
        ('{"value": 1, "offset": -1}', "1: Expected `int` >= 0 - at `$.offset`"),
        ('{"value": 1, "partition": 2147483648}', "1: Expected `int` <= 2147483647 - at `$.partition`"),
        ('{"value": 1, "topic": "ordres"}', "1: topic: 'ordres' is none of source.topics: orders"),
        ('{"value": {"base64": "A"}}', "1: base64: write bytes in base64"),
        ('{"value": {"base64": 5}}', "1: base64: write bytes in base64"),
        ('{"value": 1, "timestamp": "noon"}', "1: timestamp: 'noon' is none; write 2026-01-31T12:00:00Z"),
        ('{"value": 1, "timestamp": 99999999999999999999}', "1: timestamp: "),
        ('{"value": "\\ud800"}', "1: the line is not one JSON object"),
        ('{"value": ' + "[" * 100_000 + "}", "1: it is nested too deeply; write the value as a text"),
        ('{"value": 1, "offset": 0}', "1: line 1 has the same topic, partition and offset"),
    ],
)
def test_mistake_of_a_line_has_its_place_and_says_what_to_write(tmp_path: Path, line: str, mistake: str) -> None:
    (found,) = refusal(write_lines(tmp_path, GOOD_LINE, line))
    assert found.startswith(f"2:{mistake}")


def test_file_is_bounded_in_bytes_lines_and_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(tmp_path / "none") == ["1:1: cannot be read: No such file or directory"]
    assert refusal(write_lines(tmp_path, "")) == ["1:1: it has 0 records; write 1 to 10,000"]
    shown = refusal(write_lines(tmp_path, *["{}"] * (MOST_FAULTS + 3)))
    assert (len(shown), shown[-1]) == (MOST_FAULTS + 1, "1:1: and 3 faults more")
    monkeypatch.setattr(records_file, "MOST_RECORDS", 2)
    assert refusal(write_lines(tmp_path, *[GOOD_LINE] * 3)) == ["1:1: it has 3 records; write 1 to 2"]
    monkeypatch.setattr(records_file, "LARGEST_BYTES", 1024)
    assert refusal(write_lines(tmp_path, " " * 2000)) == ["1:1: it has more than 1 KiB"]
    (tmp_path / "orders.jsonl").write_bytes(b'{"value": 1}\n\xff')
    assert refusal(tmp_path / "orders.jsonl") == ["2:1: it is not text in UTF-8 from line 2 on"]


def test_each_record_becomes_a_row_or_has_the_reason_of_the_decoder(tmp_path: Path) -> None:
    values = [
        '{"id": "a", "amount": 1.10}',
        '{"id": "b", "amount": 1e400}',
        '{"id": "c", "id": "d"}',
        '{"amount": 1.005}',
    ]
    trial = attempt(tmp_path, *(f'{{"value": {each}}}' for each in values), {"value": None}, {"value": "{"})
    assert declared(trial) == [{"id": "a", "amount": "1.10"}]
    assert {name: trial.rows[0][name] for name in ("_topic", "_partition", "_offset", "_timestamp")} == {
        "_topic": "orders", "_partition": 0, "_offset": 0, "_timestamp": MOMENT,
    }  # fmt: skip
    decoder = make_lone_decoder(read_pipeline_file(tmp_path / "orders.yaml"))
    found = decoder.decode(read_records(tmp_path / "orders.jsonl", ["orders"]).records).set_aside
    assert found is not None
    assert sorted(found["error"].to_pylist()) == sorted(reason for _, reason in reasons(trial))
    assert [line for line, _ in reasons(trial)] == [2, 3, 4, 5, 6]


def test_every_type_has_one_way_to_be_written(tmp_path: Path) -> None:
    schema = (
        "i bigint, f float, d double, n decimal(38,3), b boolean, t timestamp, day date, raw binary, u uuid, j jsonb, "
        "a array<decimal(4,1)>, m map<string, int>, s struct<x: double, y: string>"
    )
    value = (
        '{"i": 9223372036854775807, "f": 0.1, "d": 1e300, "n": 12345678901234567890.120, "b": true, '
        '"t": "2026-01-01T12:00:00.5Z", "day": "2026-01-31", "raw": "AP8=", '
        '"u": "1B4E28BA-2FA1-11D2-883F-0016D3CCA427", "j": {"a": 1.10}, "a": [1.5, null], "m": {"k": 1}, "s": {"x": 2}}'
    )
    trial = attempt(tmp_path, f'{{"value": {value}}}', source__schema=schema)
    assert (declared(trial), reasons(trial)) == (
        [
            {
                "i": 2**63 - 1, "f": 0.1, "d": 1e300, "n": "12345678901234567890.120", "b": True,
                "t": "2026-01-01T12:00:00.500000+00:00", "day": "2026-01-31", "raw": {"base64": "AP8="},
                "u": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "j": '{"a": 1.10}', "a": ["1.5", None], "m": {"k": 1},
                "s": {"x": 2.0, "y": None},
            }
        ],
        [],
    )  # fmt: skip


def test_key_headers_and_tombstones_are_read_as_the_file_says(tmp_path: Path) -> None:
    lines = [
        {"value": {"id": "a"}, "key": "7", "headers": {"tenant": "blue"}},
        {"value": {"id": "b"}, "key": "seven"},
        {"value": None, "key": "7"},
        {"value": None},
    ]
    outer = {
        "source__key": {"format": "string", "columns": "k bigint"},
        "source__headers": {"tenant": "header tenant string"},
    }
    deleting = {"sink__mode": "upsert", "sink__key": ["k"], "source__tombstones": "delete"}
    trial = attempt(tmp_path, *lines, **outer, **deleting)
    assert [(row["id"], row["k"], row["tenant"], row["_deleted"]) for row in trial.rows] == [
        ("a", 7, "blue", False), (None, 7, None, True),
    ]  # fmt: skip
    assert reasons(trial) == [
        (2, "its key: k (bigint) cannot hold a text that is not its JSON"),
        (4, "the record has no value, and its key has no value for a key column"),
    ]
    skipping = attempt(tmp_path, *lines, **outer, source__tombstones="skip")
    assert (skipping.tombstones, len(skipping.rows)) == ((3, 4), 1)


def test_avro_without_a_registry_is_read_by_the_file_of_its_schema(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    datum = base64.b64encode(encode(ORDER, {"id": "a", "amount": 1.5})).decode()
    lines = [{"value": {"base64": datum}}, {"value": {"base64": "AAAAAAAH"}}]
    trial = attempt(tmp_path, *lines, **AVRO, source__framing="none", source__schema_file="order.avsc")
    assert declared(trial) == [{"id": "a", "amount": 1.5}]
    assert [line for line, _ in reasons(trial)] == [2]


def test_schema_of_a_registry_comes_from_a_file_and_never_from_the_registry(tmp_path: Path) -> None:
    framed = base64.b64encode(frame(7, encode(ORDER, {"id": "a", "amount": 1.5}))).decode()
    line, registry = {"value": {"base64": framed}}, {**AVRO, "source__registry": "registry_default"}
    schema_file = tmp_path / "order.avsc"
    schema_file.write_text(json.dumps(ORDER))
    assert declared(attempt(tmp_path, line, schema_file=schema_file, **registry)) == [{"id": "a", "amount": 1.5}]
    with pytest.raises(ConfigurationError, match="name their schema in a registry, which is not asked") as told:
        attempt(tmp_path, line, **registry)
    assert "--schema-file" in told.value.advice
    with pytest.raises(ConfigurationError, match=r"--schema-file: .* cannot be read"):
        attempt(tmp_path, line, schema_file=tmp_path / "none.avsc", **registry)
    with pytest.raises(ConfigurationError, match="cannot be tried") as told:
        attempt(tmp_path, line, schema_file=schema_file, **registry, source__reader_schema=1)
    assert "source.reader_schema" in told.value.why


def test_hash_needs_no_secret_and_is_none_of_production(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file asks for a secret. Nothing looks for it, and the rows say that another one was taken."""
    monkeypatch.setattr("batchledger.reading.read_key_secret", lambda _: pytest.fail("the secret was read"))
    trial = attempt(tmp_path, {"value": {"id": "a", "amount": 1}}, source__protect={"id": "hash"})
    pipeline = read_pipeline_file(tmp_path / "orders.yaml")
    decoder = make_lone_decoder(pipeline)
    own = RecordDecoder(decoder.columns, protector=Protector(pipeline.source.protect, b"of production"))
    other = own.decode(read_records(tmp_path / "orders.jsonl", ["orders"]).records).rows[0]["id"].to_pylist()
    assert len(trial.rows[0]["id"]) == len(other[0])
    assert trial.rows[0]["id"] != other[0]
    assert decoder.protector.secret == TRIAL_SECRET
    assert trial.notes == ("Hashes of id are made with a secret that every person knows: a run makes others.",)


def test_duplicate_within_the_file_is_dropped_or_blocks(tmp_path: Path) -> None:
    lines = [{"value": {"id": each}} for each in ("a", "b", "a", None, None)]
    lines += [{"value": {"id": "b"}, "partition": 1, "offset": 0}, {"value": {"id": "c"}, "offset": 9}]
    by_id = {"key": ["id"], "remember": "7d"}
    trial = attempt(tmp_path, *lines, dedupe=by_id)
    assert [row["id"] for row in trial.rows] == ["a", "b", None, None, "c"]
    assert [(each.line, each.first) for each in trial.duplicates] == [(3, 1), (6, 2)]
    assert not trial.is_blocked
    blocked = attempt(tmp_path, *lines, dedupe={**by_id, "duplicates": "block"})
    assert [each.name for each in blocked.checks if each.blocks] == ["no_duplicate_messages"]


def test_what_would_block_the_batch_is_said(tmp_path: Path) -> None:
    unknown = {"value": {"id": "a", "extra": 1}}
    assert [(each.name, each.blocks) for each in attempt(tmp_path, unknown).checks] == [("no_unknown_fields", False)]
    blocking = attempt(tmp_path, unknown, source__unknown_fields="block")
    assert "extra in 1" in blocking.checks[0].detail
    assert blocking.is_blocked
    draining = attempt(tmp_path, *[{"value": 5}] * 11, *[GOOD_LINE] * 9)
    assert [each.name for each in draining.checks if each.blocks] == ["quarantine_within_limit"]
    assert not attempt(tmp_path, *[{"value": 5}] * 10, *[GOOD_LINE] * 10).is_blocked


def test_check_that_needs_postgres_is_not_judged_and_never_passes(tmp_path: Path) -> None:
    asked = [
        {"type": "expect_column_values_to_match_regex", "column": "id", "regex": "^z"},
        {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0.5},
        {"type": "expect_column_values_to_not_be_null", "column": "id", "row_condition": 'col("id") == "a"'},
        {"type": "expect_batch_rows_to_be_near_recent", "min_ratio": 0.5},
    ]
    trial = attempt(tmp_path, GOOD_LINE, checks=asked)
    assert [(each.outcome, bool(each.detail)) for each in trial.checks] == [("not_judged", True)] * 4


def test_rows_that_fail_a_check_are_set_aside_with_the_reason_of_an_audit(tmp_path: Path) -> None:
    quarantining = {"on_failure": "quarantine", "column": "amount", "type": "expect_column_values_to_not_be_null"}
    unique = {"column": "id", "type": "expect_column_values_to_be_unique"}
    counted = {"type": "expect_table_row_count_to_be_between", "min_value": 3}
    lines = [{"value": {"id": "a", "amount": 1}}, {"value": {"id": "a"}}, {"value": {"id": "b", "amount": 2}}]
    trial = attempt(tmp_path, *lines, checks=[quarantining, unique, counted])
    name = "expect_column_values_to_not_be_null(amount)"
    assert reasons(trial) == [(2, f"check {name}: the row does not pass it")]
    assert [row["id"] for row in trial.rows] == ["a", "b"]
    # What is left is judged anew: it is unique now, and too few.
    found = {each.name: (each.outcome, each.lines, each.blocks) for each in trial.checks}
    assert found == {
        name: ("failed", (2,), False),
        "expect_column_values_to_be_unique(id)": ("passed", (), False),
        "expect_table_row_count_to_be_between": ("failed", (), True),
    }


def test_file_without_values_is_judged_as_empty(tmp_path: Path) -> None:
    asked = [{"type": "expect_column_values_to_not_be_null", "column": "id"}]
    assert [each.outcome for each in attempt(tmp_path, {"value": 5}, checks=asked).checks] == ["empty"]


def expect(folder: Path, **content: Any) -> Path:
    path = folder / "orders.expect.yaml"
    path.write_text(yaml.safe_dump({"records": "orders.jsonl", **content}, sort_keys=False))
    return path


def differences(folder: Path, trial: Trial, **content: Any) -> list[str]:
    found = read_expectation(expect(folder, **content)).compare(trial)
    return [f"{each.line}:{each.column}: {each.text}" for each in found]


def make_trial(*rows: Mapping[str, Any], checks: Sequence[TriedCheck] = ()) -> Trial:
    made = tuple({"_offset": number, **each} for number, each in enumerate(rows))
    return Trial(len(rows), made, (), (), (), (), tuple(checks))


def test_expectation_holds_if_every_row_record_and_check_is_as_it_says(tmp_path: Path) -> None:
    trial = attempt(tmp_path, GOOD_LINE, {"value": {"id": "b", "x": 1}}, {"value": 5})
    right: dict[str, Any] = {
        "rows": [{"id": "a", "amount": "1.10", "_offset": 0}, {"id": "b"}],
        "quarantined": [{"line": 3, "reason": "one JSON object"}],
        "checks": {"no_unknown_fields": "failed"},
    }
    assert differences(tmp_path, trial, **right) == []
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"rows": right["rows"][:1]}, '2:1: rows.1: expected no row, found {"id": "b", "amount": null}'),
        ({"rows": [*right["rows"], {"id": "c"}]}, "7:3: rows.2: expected a row, found none"),
        ({"rows": [right["rows"][0], {"id": "c"}]}, '6:7: rows.1.id: expected "c", found "b" (offset 1)'),
        ({"rows": [{"id": "a"}, {"id": "b"}]}, '3:3: rows.0.amount: expected null, found "1.10" (offset 0)'),
        ({"rows": [{**right["rows"][0], "ids": 1}, {"id": "b"}]}, "6:8: rows.0.ids: the rows have no such column; did"),
        ({"rows": [{**right["rows"][0], "_offset": 7}, {"id": "b"}]}, "5:12: rows.0._offset: expected 7, found 0 (off"),
        ({"quarantined": []}, "7:1: line 3: not expected in quarantine: the value is not exactly one JSON object"),
        ({"quarantined": [{"line": 3, "reason": "range"}]}, "9:11: line 3: expected 'range', found: the value is not"),
        ({"quarantined": [{"line": 3}, {"line": 9}]}, "9:9: line 9: expected in quarantine, and it is not there"),
        ({"checks": {}}, "10:1: no_unknown_fields: not expected: failed: records with fields that source.schema"),
        ({"checks": {"no_unknown_fields": "passed"}}, "11:22: no_unknown_fields: expected passed, found failed"),
        ({"checks": {**right["checks"], "x": "failed"}}, "12:6: x: expected failed; no such check was judged"),
    ]
    for change, told in wrong:
        (found,) = differences(tmp_path, trial, **{**right, **change})
        assert found.startswith(told), found


def test_what_an_expectation_leaves_out_is_expected_to_be_empty(tmp_path: Path) -> None:
    trial = attempt(tmp_path, GOOD_LINE, {"value": 5})
    assert [each.partition(": ")[2][:16] for each in differences(tmp_path, trial)] == [
        "rows.0: expected", "line 2: not expe",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "found"), [(1, 1.0), ([1, None], [1.0, None]), ({"a": 1, "b": [True]}, {"b": [True], "a": 1}), ("", "")]
)
def test_values_are_the_same_if_json_means_the_same(tmp_path: Path, wanted: object, found: object) -> None:
    assert differences(tmp_path, make_trial({"c": found}), rows=[{"c": wanted}]) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        *((1, True), (False, 0), (1, "1"), ("1.1", "1.10"), (None, False), (2**63 - 1, 2**63), ([1], [1, None])),
        *(({"a": 1}, {"a": True}), ({"a": 1}, {"a": 1, "b": None}), ([1], 1), ("", None)),
    ],
)
def test_other_values_are_a_difference(tmp_path: Path, wanted: object, found: object) -> None:
    assert len(differences(tmp_path, make_trial({"c": found}), rows=[{"c": wanted}])) == 1


def test_moment_of_yaml_is_the_moment_of_a_row(tmp_path: Path) -> None:
    path = expect(tmp_path)
    path.write_text("records: r\nrows: [{at: 2026-01-01T00:00:00Z, day: 2026-01-31}]\n")
    assert read_expectation(path).compare(make_trial({"at": MOMENT, "day": "2026-01-31"})) == ()


def test_row_that_deletes_its_key_is_expected_by_name_only(tmp_path: Path) -> None:
    assert differences(tmp_path, make_trial({"c": 1, "_deleted": False}), rows=[{"c": 1}]) == []
    (found,) = differences(tmp_path, make_trial({"c": 1, "_deleted": True}), rows=[{"c": 1}])
    assert "rows.0._deleted: expected false, found true" in found


def test_check_that_could_not_run_or_is_not_judged_is_no_pass(tmp_path: Path) -> None:
    trial = make_trial(
        checks=[TriedCheck("a", "not_run", "critical", "broken"), TriedCheck("b", "not_judged", "critical", "")]
    )
    (broken,) = differences(tmp_path, trial)
    assert "a: not expected: not_run: broken" in broken
    wanted = {"a": "not_run", "b": "passed"}
    (unjudged,) = differences(tmp_path, trial, checks=wanted)
    assert "b: expected passed, found not_judged" in unjudged


def test_differences_are_bounded(tmp_path: Path) -> None:
    found = differences(tmp_path, make_trial(*[{"c": 1}] * (MOST_FAULTS + 2)))
    assert (len(found), found[-1]) == (MOST_FAULTS + 1, "1:1: and 2 differences more")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "1:1: not what is expected: it has no keys; write records, rows and quarantined"),
        ("rows: []\n", "1:1: records: this key is required"),
        ("records: a\nrow: []\n", "2:1: row: unknown key 'row'; did you mean 'rows'?"),
        ("records: a\nrows: [7]\n", "2:8: rows.0: 7: write keys with their values below it"),
        ("records: a\nquarantined:\n- {line: 0}\n", "3:10: quarantined.0.line: 0: "),
        ("records: a\nchecks: {c: fails}\n", "2:13: checks.c: 'fails' is not allowed; allowed: 'passed', 'failed', "),
        ("records: ../a\n", "1:10: records: it has to lie in the folder"),
        ("records: a\nschema_file: /etc/passwd\n", "2:14: schema_file: it has to lie in the folder"),
        ("records: a\nrows: [{c: [}]\n", "2:13: not readable as YAML: "),
    ],
)
def test_mistake_of_an_expectation_has_its_place(tmp_path: Path, text: str, mistake: str) -> None:
    path = tmp_path / "orders.expect.yaml"
    path.write_text(text)
    with pytest.raises(FileRefusedError) as refused:
        read_expectation(path)
    assert refused.value.message.startswith(f"{path}:{mistake}")


def test_expectation_beside_the_pipeline_file_makes_it_pass_or_fail(tmp_path: Path) -> None:
    write(tmp_path, changed())
    write_lines(tmp_path, GOOD_LINE)
    path = expect(tmp_path, rows=[{"id": "a", "amount": "1.10"}])
    assert [each.name for each in find_pipeline_files(tmp_path)] == ["orders.yaml"]
    for arguments in ((), ("orders",), (tmp_path / "orders.yaml",), ("orders", "--expect", path)):
        passed = invoke(tmp_path, *arguments)
        assert (passed.exit_code, passed.stdout) == (0, f"orders: 1 record: 1 row. As {path} expects.\n")
    expect(tmp_path, rows=[{"id": "a", "amount": "1.1"}])
    failed = invoke(tmp_path)
    assert (failed.exit_code, failed.stdout) == (
        1,
        f'{path}:4:11: rows.0.amount: expected "1.1", found "1.10" (offset 0)\norders: 1 record: 1 row.\n',
    )
    told = json.loads(invoke(tmp_path, "orders", "--json").stdout)
    assert [each["line"] for each in told["differences"]] == [4]
    # Other records are shown, and not compared.
    shown = invoke(tmp_path, "orders", "--records", write_lines(tmp_path, GOOD_LINE, GOOD_LINE))
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "orders: 2 records: 2 rows.")


def test_pipeline_that_is_refused_leaves_the_others_tried(tmp_path: Path) -> None:
    write(tmp_path, changed())
    write_lines(tmp_path, GOOD_LINE)
    expect(tmp_path, rows=[{"id": "a", "amount": "1.10"}])
    (tmp_path / "wrong.yaml").write_text("name: wrong\n")
    done = invoke(tmp_path, "wrong", "orders")
    assert (done.exit_code, "As " in done.stdout, "wrong.yaml:1:1: source" in done.stdout) == (2, True, True)
    told = json.loads(invoke(tmp_path, "wrong", "orders", "--json").stdout)
    assert [each.get("pipeline") for each in told] == ["wrong", "orders"]
    alone = invoke(tmp_path, "wrong")
    assert isinstance(alone.exception, FileRefusedError)


def test_command_says_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path, changed())
    for arguments, told in (
        ((), "has a file of expectations beside it"),
        (("orders",), "no records to try orders with"),
    ):
        done = invoke(tmp_path, *arguments)
        assert isinstance(done.exception, ConfigurationError)
        assert told in done.exception.message
    assert invoke(tmp_path, "--records", "x").exit_code == 2


def test_wide_rows_are_shown_as_a_file_of_expectations_has_them(tmp_path: Path) -> None:
    write(tmp_path, changed())
    path = write_lines(tmp_path, {"value": {"id": "[red]\x1b[31m"}}, *[GOOD_LINE] * 21, {"value": 5})
    wide = invoke(tmp_path, "orders", "--records", path, COLUMNS="300").stdout
    narrow = invoke(tmp_path, "orders", "--records", path, COLUMNS="60").stdout
    assert "Rows of orders" in wide
    assert "and 2 rows more" in wide
    assert "\x1b" not in wide + narrow
    rows = yaml.safe_load(narrow.partition("and 2 rows")[0])["rows"]
    assert (len(rows), rows[0]["id"], rows[1]["amount"]) == (20, "[red]\x1b[31m", "1.10")
    assert "23    the value is not exactly one JSON object" in narrow


@pytest.mark.parametrize("name", ["flights", "flights_kafka", "flights_iceberg"])
def test_sample_is_as_its_expectation_says(name: str) -> None:
    folder = PACKAGE / "pipelines"
    done = invoke(folder, name, "--expect", folder / "flights.expect.yaml")
    assert (done.exit_code, done.stdout.split(".")[0]) == (0, f"{name}: 5 records: 2 rows, 3 quarantined")


def test_sample_in_avro_is_tried_by_a_file_of_its_schema(tmp_path: Path) -> None:
    types = {each.name: each.type for each in parse_columns(read_pipeline_file(AVRO_SAMPLE).source.record_schema)}
    names = {"string": "string", "int": "int", "double": "double"}
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    schema = record_schema(**{name: ["null", names.get(str(type_), moment)] for name, type_ in types.items()})
    (tmp_path / "flight.avsc").write_text(json.dumps(schema))
    flight = dict.fromkeys(types) | {"message_id": "a", "flight": 1545, "sched_dep": datetime(2013, 1, 1, tzinfo=UTC)}
    framed = base64.b64encode(frame(7, encode(schema, flight))).decode()
    path = write_lines(tmp_path, {"value": {"base64": framed}}, {"value": {"base64": ""}})
    wanted = {"message_id": "a", "flight": 1545, "sched_dep": "2013-01-01T00:00:00+00:00"}
    content = {"rows": [wanted], "quarantined": [{"line": 2}], "schema_file": "flight.avsc", "records": path.name}
    done = invoke(tmp_path, AVRO_SAMPLE, "--expect", expect(tmp_path, **content))
    assert (done.exit_code, done.stdout.split(".")[0]) == (0, "flights_avro: 2 records: 1 row, 1 quarantined")


def test_fields_that_are_kept_are_a_column_that_is_compared(tmp_path: Path) -> None:
    trial = attempt(tmp_path, '{"value": {"id": "a", "x": 1.10}}', source__unknown_fields="keep")
    assert differences(tmp_path, trial, rows=[{"id": "a", "_rest": '{"x":1.10}'}]) == []
    assert len(differences(tmp_path, trial, rows=[{"id": "a"}])) == 1
    # Which columns were added before, the ledger knows.
    added = attempt(tmp_path, '{"value": {"id": "a", "x": 1}}', source__unknown_fields="add", sink__evolve="add")
    assert [sorted(row)[-2:] for row in added.rows] == [["amount", "id"]]


def test_try_imports_nothing_that_a_pipeline_without_transform_and_checks_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHLEDGER_PIPELINES", str(PACKAGE / "pipelines"))
    assert {*run(tmp_path, "try", "flights").packages} & {
        "airflow",
        "great_expectations",
        "pyspark",
        "sqlalchemy",
    } == set()
