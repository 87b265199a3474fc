"""The reference of the pipeline file is made of its JSON Schema, and names every key once."""

import re
from collections.abc import Iterator
from runpy import run_path
from typing import get_args

import pytest

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.sinks.kinds import KINDS
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "reference" / "pipeline-file.md").read_text(encoding="utf-8")
EXTENSION = run_path(str(ROOT / "docs" / "extensions" / "pipeline_keys.py"))
TABLES = re.compile(r"(?m)^```\{keys\} (.+)\n((?:.+\n)*)```$")


def named_keys(text: str) -> Iterator[str]:
    """What the tables of the page are asked for."""
    for table in TABLES.finditer(text):
        yield from table[1].split()


def test_every_key_and_every_kind_of_sink_is_in_one_table_of_the_page() -> None:
    kinds = [f"sink.{get_args(each.model_fields['type'].annotation)[0]}" for each in KINDS]
    assert sorted(named_keys(TEXT)) == sorted([*(set(PipelineConfig.model_fields) - {"sink"}), *kinds])


def test_table_has_each_key_of_a_section_with_its_default_its_meaning_and_what_is_allowed() -> None:
    rows = {key: (default, meaning) for key, default, meaning in EXTENSION["list_rows"]("source")}
    assert rows["source.topics"] == ("*required*", "One or more; all have the same schema.")
    assert rows["source.format"] == ("`json`", "How values are written. Allowed: `json`, `avro`, `protobuf`.")
    assert rows["source.key.format"][0] == "*required*"
    assert rows["source.registry"][0] == "*none*"
    for name, key, expected in (
        ("limits", "limits.max_delay", "`5m`"),
        ("sink.kafka", "sink.accept_older_transactions", "`false`"),
        ("sink.postgres", "sink.type", "`postgres`"),
        ("sink.iceberg", "sink.type", "*required*"),
    ):
        assert {row[0]: row[1] for row in EXTENSION["list_rows"](name)}[key] == expected


def test_text_behind_a_meaning_belongs_to_a_key_that_exists() -> None:
    """Else the site is not built."""
    for table in TABLES.finditer(TEXT):
        more = dict(line.split(": ", 1) for line in table[2].splitlines())
        assert all(text in "\n".join(EXTENSION["write_keys"](table[1].split(), more)) for text in more.values())
    with pytest.raises(KeyError, match=r"limits\.most"):
        list(EXTENSION["write_keys"](["limits"], {"limits.most": "no such key"}))


def test_key_that_the_page_forgets_is_noticed() -> None:
    """Negative control."""
    assert "dedupe" not in set(named_keys(TEXT.replace("```{keys} dedupe\n", "```{keys} limits\n")))
