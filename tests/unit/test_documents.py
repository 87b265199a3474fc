"""Each file in the folder of pipeline files is read at a bounded cost, and refused without quoting its text."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from batchledger.config.documents import LARGEST_BYTES, read_json, read_yaml
from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.model.errors import ConfigurationError
from batchledger.model.quoting import quote

SECRET = "hunter2-" * 10
LONGEST_MESSAGE = 12_000

# Nine lists of nine, each of the one before: 433 bytes that were a message of 72 MB.
BOMB = "\n".join(
    ["a: &a [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    + [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefg", "bcdefgh", strict=True)]
)
MERGES = "\n".join(
    ["a: &a {x: 1}"]
    + [f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 40)}]}}" for before, name in zip("abc", "bcd", strict=True)]
)


def refusal(folder: Path, content: str | bytes) -> str:
    path = folder / "orders.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigurationError) as refused:
        read_pipeline_file(path)
    message = str(refused.value)
    assert len(message) < LONGEST_MESSAGE
    assert SECRET not in message
    found = re.match(rf"{re.escape(str(path))}:(\d+):(\d+): (.*)", message)
    assert found
    return message.replace(found[0], f"{found[3]}, line {found[1]}, column {found[2]}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BOMB, "with its aliases written out it has more than 256 KiB or 32 levels, line 6"),
        (MERGES, "with its aliases written out it has more than 256 KiB or 32 levels, line 4"),
        ("a: &a [*a]", "an alias stands inside of what it means, line 1, column 8"),
        ("a: &a {b: *a}", "an alias stands inside of what it means, line 1"),
        (f"a: &{SECRET} x\nb: &{SECRET} y", "duplicate anchor, line 2"),
        (f"a: *{SECRET}", "undefined alias, line 1"),
        ("a: " + "[" * 100_000, "more than 32 levels, line 1, column 35"),
        ("a: " + "{a: " * 50_000, "more than 32 levels, line 1"),
        ("- " * 100_000, "more than 32 levels, line 1"),
        ("? " * 100_000, "more than 32 levels, line 1"),
        ("a0: &a0 []\n" + "".join(f"a{each}: &a{each} [*a{each - 1}]\n" for each in range(1, 9000)), "or 32 levels"),
        ("a: " + "x" * LARGEST_BYTES, "it has more than 256 KiB"),
        ("name: orders\nname: payments", "key 'name' appears twice, line 2, column 1"),
        (f"{'k' * 500}: 1\n{'k' * 500}: 2", f"key '{'k' * 60}' appears twice, line 2"),
        ("a: {b: 1, <<: {}, b: 2}", "key 'b' appears twice, line 1"),
        ("1: x", "a key is not text; put it in quotes, line 1"),
        ("on: x", "a key is not text; put it in quotes, line 1"),
        ("? [a, b]\n: x", "a key is not text; put it in quotes, line 1"),
        ("a: !!python/object/apply:os.system ['true']", "a tag (!) is not allowed here, line 1, column 4"),
        (f"a: !{SECRET} x", "a tag (!) is not allowed here, line 1"),
        ("a: !!int ''", "a tag (!) is not allowed here, line 1"),
        ("a: !!binary aGk=", "a tag (!) is not allowed here, line 1"),
        ("!!set {a, b}", "a tag (!) is not allowed here, line 1"),
        (f"%TAG ! tag:{SECRET},2000:\n---\n!x {{}}", "a tag (!) is not allowed here, line 3"),
        (f"a: !{SECRET}!x y", "undefined tag handle, line 1"),
        (
            "a: " + "9" * 5000,
            "what looks like a whole number is none that can be read; if it is text, put it in quotes",
        ),
        ("a: 0x" + "f" * 100_000, "what looks like a whole number is none that can be read"),
        ("a: 0b_", "what looks like a whole number is none that can be read"),
        ("a: 1" + ":00" * 50_000, "what looks like a whole number is none that can be read"),
        ("a: 1" + ":00" * 50_000 + ".5", "what looks like a number is none that can be read"),
        ("source: {start: 2026-02-30}", "what looks like a date or a moment is none that can be read"),
        ("source: {start: 2026-01-01 25:00:00}", "what looks like a date or a moment is none that can be read"),
        (b"a: 1\nname: \xff\xfe", "it is not text in UTF-8 from line 2 on, line 2, column 7"),
        ("a: 1\nname: or\0ders", "a character that YAML does not allow, U+0000, line 2, column 9"),
        ("a: 1\n---\nb: 2", "but found another document"),
        (f"a: [{SECRET}", "line 1"),
        (f"a: '{SECRET}", "line 1"),
        (f"a: b: {SECRET}", "mapping values are not allowed here, line 1"),
        (f"a: @{SECRET}", "cannot start any token, line 1"),
        ("a: \t- b\n\tc: d", "line "),
        ('a: "\\q"', "unknown escape character 'q', line 1"),
    ],
    ids=lambda each: repr(each)[:40],
)
def test_file_that_is_no_plain_and_small_yaml_is_refused_with_the_line_and_without_its_text(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    assert reason in refusal(tmp_path, content)


def test_aliases_within_the_bounds_are_read(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text("a: &a {x: 1, y: [2]}\nb: {<<: *a, x: !!str 3}\nc: [*a, *a]\n'1': 2026-11-21\nd: 1_000.5")
    found = read_yaml(path).content
    assert (found["b"], found["c"]) == ({"x": "3", "y": [2]}, [found["a"]] * 2)
    assert found == yaml.safe_load(path.read_text())


def test_nothing_but_a_file_is_read(tmp_path: Path) -> None:
    """A pipe would be waited for, a device never ends."""
    for name, make in {
        "pipe": os.mkfifo,
        "folder": os.mkdir,
        "device": lambda path: path.symlink_to("/dev/zero"),
    }.items():
        path = tmp_path / f"{name}.yaml"
        make(path)
        with pytest.raises(ConfigurationError, match="not readable as YAML: it is not a file"):
            read_pipeline_file(path)


def test_file_whose_name_is_not_text_is_refused_by_a_message_that_is(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.yaml"))
    path.write_text("a: 1")
    with pytest.raises(ConfigurationError) as refused:
        read_pipeline_file(path)
    assert "\\udcff.yaml:1:1: name: this key is required" in str(refused.value).encode().decode()


GOOD: dict[str, Any] = {
    "name": "orders",
    "source": {"topics": ["orders"], "schema": "id string, amount decimal(10, 2)"},
    "sink": {"table": "orders"},
}


@pytest.mark.parametrize(
    "content",
    [
        {**GOOD, "source": {**GOOD["source"], "topics": [{SECRET: SECRET}] * 2000}},
        {**GOOD, "source": {**GOOD["source"], "topics": [f"t{each}" for each in range(20_000)] * 2}},
        {**GOOD, "source": {**GOOD["source"], "schema": "," * 200_000}},
        {**GOOD, "source": {**GOOD["source"], "schema": "a decimal(" + "," * 200_000}},
        {**GOOD, "source": {**GOOD["source"], "schema": "x " * 100_000}},
        {**GOOD, "source": {**GOOD["source"], "start": "x" * 200_000}},
        {**GOOD, "source": {**GOOD["source"], "options": {"client.rack" * 10_000: "x"}}},
        {**GOOD, "source": {**GOOD["source"], "options": {"fetch.max.bytes": [["x"] * 10_000]}}},
        {**GOOD, "sink": {"table": "x" * 200_000}},
        {**GOOD, "sink": {"type": "x" * 200_000}},
        {**GOOD, "sink": {"type": "iceberg", "table": "a.b", "partition_by": ["x" * 200_000 + "("]}},
        {**GOOD, "sink": {"table": "orders", "mode": "upsert", "key": [f"c{each}" for each in range(20_000)]}},
        {**GOOD, "schedule": "*/1," * 50_000},
        {**GOOD, "delivery": {SECRET: [SECRET] * 5000}},
        {**GOOD, "limits": {"max_delay": "9" * 200_000 + "d"}},
        {**GOOD, "checks": [{"type": "x" * 200_000}]},
        {**GOOD, "checks": [{"type": "expect_column_values_to_not_be_null", "column": ["x"] * 20_000}]},
        {**GOOD, "checks": [{"type": "expect_column_values_to_not_be_null", "x" * 200_000: 1}]},
        {**GOOD, "checks": [{"type": f"{'x' * 200_000}:X"}]},
        {**GOOD, "checks": [{"suite": "x" * 200_000}]},
        {**GOOD, "alerts": ["ops"] * 40_000},
        {**GOOD, "ledger": f"postgresql://etl:{SECRET}@db/warehouse"},
        {**GOOD, **{f"unknown_{each}": SECRET for each in range(5000)}},
        [SECRET] * 5000,
    ],
    ids=lambda each: repr(each)[100:160],
)
def test_value_of_any_size_and_kind_is_refused_by_a_short_message(tmp_path: Path, content: object) -> None:
    assert refusal(tmp_path, json.dumps(content))


def test_first_faults_are_told_and_the_others_counted(tmp_path: Path) -> None:
    lines = refusal(tmp_path, json.dumps({**GOOD, **{f"unknown_{each}": 1 for each in range(5000)}})).splitlines()
    assert len(lines) == 22
    assert "and 4,980 faults more" in lines[-2]
    assert lines[-1].startswith("Correct the file.")


def with_suite(folder: Path, name: object) -> str:
    return refusal(folder, json.dumps({**GOOD, "checks": [{"suite": name}]}))


def test_suite_lies_in_the_folder_of_the_pipeline_file_and_nothing_else_is_read(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside.json", tmp_path / "pipelines"
    folder.mkdir()
    outside.write_text(json.dumps({"expectations": [SECRET]}))
    (folder / "link.json").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    for name in (
        str(outside),
        "../outside.json",
        "link.json",
        "linked/outside.json",
        "./../outside.json",
        "a\0b",
        5,
        [],
    ):
        assert "it has to lie in the folder of the pipeline file" in with_suite(folder, name)
    (folder / "within.json").symlink_to(folder / "real.json")
    (folder / "real.json").write_text(json.dumps({"expectations": []}))
    path = folder / "orders.yaml"
    path.write_text(json.dumps({**GOOD, "checks": [{"suite": "within.json"}]}))
    assert read_pipeline_file(path).requested_checks == ()


def test_class_of_ones_own_lies_in_the_folder_too(tmp_path: Path) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (tmp_path / "elsewhere.py").write_text("class Mine: ...\nclass Secret: ...")
    (folder / "linked.py").symlink_to(tmp_path / "elsewhere.py")
    for text, reason in {
        None: "it has to lie in the folder of the pipeline file",
        f"{SECRET} =": "linked.py is not Python: line 1",
        "x = " + "(" * 5000: "linked.py ",
        "x" * (LARGEST_BYTES + 1): "it has more than 256 KiB",
        "x = '\0'": "linked.py ",
    }.items():
        if text is not None:
            (folder / "linked.py").unlink(missing_ok=True)
            (folder / "linked.py").write_text(text)
        assert reason in refusal(folder, json.dumps({**GOOD, "checks": [{"type": "linked:Mine"}]}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SECRET, "line 1, column 1: Expecting value"),
        (f"root:x:0:0:{SECRET}:/root:/bin/bash", "line 1, column 1: Expecting value"),
        ("[" * 100_000, "it is nested too deeply"),
        (f'{{"{SECRET}": [', "line 1"),
        ("5", "it has no list of expectations"),
        ('{"expectations": 5}', "it has no list of expectations"),
        (f'{{"expectations": "{SECRET}"}}', "it has no list of expectations"),
        (f'{{"expectations": [{{"type": "x"}}, "{SECRET}"]}}', "expectation 2 is no object with a type"),
        (f'{{"expectations": [{{"type": ["{SECRET}"]}}]}}', "expectation 1 is no object with a type"),
        (f'{{"expectations": [{{"type": "x", "kwargs": ["{SECRET}"]}}]}}', "with objects as kwargs and meta"),
        (f'{{"expectations": [{{"type": "x", "meta": "{SECRET}"}}]}}', "with objects as kwargs and meta"),
        ('{"expectations": [], "expectations": []}', "key 'expectations' appears twice"),
        (" " * (LARGEST_BYTES + 1), "it has more than 256 KiB"),
        ('{"expectations": [' + "9" * 5000 + "]}", "Exceeds the limit"),
    ],
    ids=lambda each: repr(each)[:40],
)
def test_suite_that_is_none_is_refused_without_its_text(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "suite.json").write_text(text)
    assert reason in with_suite(tmp_path, "suite.json")


def test_json_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text('{"a": [1, {"b": null}]}')
    assert read_json(path) == {"a": [1, {"b": None}]}


@pytest.mark.parametrize(
    "written",
    [
        f"postgresql://ana:{SECRET}@db/orders",
        f"postgresql://ana:s/{SECRET}@db/orders",
        f"postgresql://ana:s3@{SECRET}@db/orders",
        f"host=db password={SECRET}",
        f"host=db PASSWORD = {SECRET}",
        f"sasl.password: {SECRET}",
        f"access_token={SECRET}",
    ],
)
def test_message_quotes_no_password(written: str) -> None:
    assert "hunter" not in quote(written)
    assert quote(["orders", written]).startswith("['orders', ")
