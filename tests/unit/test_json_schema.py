"""The JSON Schema of pipeline files is made of the models, and refuses nothing that they take."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import BaseModel

from batchledger.config.check_entries import CheckEntry, SuiteEntry
from batchledger.config.json_schema import make_schema, read_meanings
from batchledger.config.pipeline_file import PipelineConfig, find_pipeline_files, read_pipeline_file
from batchledger.model.errors import ConfigurationError
from batchledger.settings.values import Section, find_section, write_duration
from batchledger.sinks.kinds import KINDS
from tests.conftest import ROOT
from tests.unit.test_config import AVRO_TOPIC, GOOD, TOPIC, UPSERT, changed, write

SCHEMA = make_schema()
PACKAGE = ROOT / "include" / "batchledger"
SAMPLES = [*find_pipeline_files(PACKAGE / "pipelines"), *find_pipeline_files(PACKAGE / "local" / "samples")]
LINE = "# yaml-language-server: $schema=./pipeline.schema.json\n"

TAKEN: list[dict[str, Any]] = [
    GOOD,
    changed(sink=TOPIC, ledger="books"),
    changed(sink={**AVRO_TOPIC, "subject": "s", "headers": "packed", "transaction_timeout": "2m"}),
    changed(sink={"type": "iceberg", "table": "shop.orders", "partition_by": ["day(_timestamp)"]}),
    changed(schedule="@daily", start_on_records={}, transform="shop.orders:clean", delivery="at_least_once", **UPSERT),
    changed(schedule=None, dedupe=None, quarantine=None, ledger=None),
    changed(source__start="2026-11-21T00:00:00Z", source__options={"fetch.min.bytes": 1, "client.rack": "a"}),
    changed(source__start=20261121, source__headers={"tenant": "header tenant string"}),
    changed(source__key={"format": "string", "columns": "k string"}, source__protect={"id": "hash"}),
    changed(dedupe={"key": ["id"], "remember": "1d"}, limits={"max_delay": 0, "target_duration": "2 m"}),
    changed(quarantine={"keep": "90d", "max_share": 0.5}, history={"keep": "7d"}, audit={"newest": 9}),
    changed(alerts=["ops"], deadlines={"lag": "10m"}, second_person=["erase", "accept-loss"]),
    changed(
        checks=[
            {"type": "expect_column_values_to_be_between", "column": "amount", "min_value": 0, "severity": "info"},
            {"type": "expect_batch_rows_to_be_near_recent", "min_ratio": 0.5},
            {"type": "json:JSONDecoder", "column": "id", "on_failure": "publish"},
            {"suite": "suite.json", "severity": "warning"},
        ]
    ),
]
"""Files that are right, and use what the schema has a form of its own for."""

STRUCTURAL: list[tuple[dict[str, Any], str]] = [
    (changed(shedule="@daily"), "Additional properties"),
    (changed(source={"schema": "a int"}), "'topics' is a required property"),
    (changed(source__topics="orders"), "is not of type 'array'"),
    (changed(source__topics=[]), "non-empty"),
    (changed(source__topics=["a", "a"]), "non-unique"),
    (changed(source__topics=["a b"]), "does not match"),
    (changed(source__format="xml"), "is not one of"),
    (changed(source__start="yesterday"), "is not valid under any"),
    (changed(source__options={"group.id": "x"}), "Additional properties"),
    (changed(source__protect={"id": "hide"}), "is not one of"),
    (changed(sink={"type": "hive", "table": "t"}), "is not valid under any"),
    (changed(sink={**TOPIC, "table": "t"}), "is not valid under any"),
    (changed(sink={"type": "iceberg", "table": "orders"}), "is not valid under any"),
    (changed(limits__max_delay=30), "is not valid under any"),
    (changed(limits__max_records=0), "less than the minimum"),
    (changed(limits__max_records="5"), "is not of type 'integer'"),
    (changed(dedupe={"key": [], "remember": "1d"}), "is not valid under any"),
    (changed(name="Orders"), "does not match"),
    (changed(transform="no colon"), "is not valid under any"),
    (changed(alerts="ops"), "is not of type 'array'"),
    (changed(second_person=["rewind"]), "is not one of"),
    (changed(checks=[{"type": "expect_nothing"}]), "is not valid under any"),
    (changed(checks=[{"suite": "s.json", "mostly": 1}]), "is not valid under any"),
]
"""Mistakes that an editor marks by the schema, and the words of a validator."""


def as_json(content: object) -> Any:
    """What a program that knows JSON only makes of a file: dates are texts."""
    return json.loads(json.dumps(content, default=str))


def takes(content: object) -> bool:
    return bool(Draft7Validator(SCHEMA).is_valid(as_json(content)))


def is_read(folder: Path, content: object) -> bool:
    (folder / "suite.json").write_text('{"expectations": []}')
    try:
        read_pipeline_file(write(folder, content))
    except ConfigurationError:
        return False
    return True


def test_schema_is_one_of_a_draft_that_every_editor_knows() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"
    newer = {"prefixItems", "dependentRequired", "dependentSchemas", "unevaluatedProperties", "discriminator"}
    assert newer.isdisjoint(_list_words(SCHEMA))


def _list_words(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _list_words(each)


@pytest.mark.parametrize("path", SAMPLES, ids=[each.stem for each in SAMPLES])
def test_sample_names_the_schema_and_keeps_to_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(LINE)
    assert takes(yaml.safe_load(text))


def test_there_are_samples_of_each_kind_of_sink() -> None:
    assert {yaml.safe_load(each.read_text())["sink"]["type"] for each in SAMPLES} == {"postgres", "kafka", "iceberg"}


@pytest.mark.parametrize("content", TAKEN, ids=" ".join)
def test_file_that_is_read_is_one_by_the_schema(tmp_path: Path, content: dict[str, Any]) -> None:
    assert is_read(tmp_path, content)
    assert takes(content)
    assert Draft202012Validator(SCHEMA).is_valid(as_json(content))


@pytest.mark.parametrize(("content", "words"), STRUCTURAL, ids=[words for _, words in STRUCTURAL])
def test_mistake_that_the_schema_can_say_is_found_by_it_and_by_the_reader(
    tmp_path: Path, content: dict[str, Any], words: str
) -> None:
    assert words in " ".join(each.message for each in Draft7Validator(SCHEMA).iter_errors(as_json(content)))
    assert not is_read(tmp_path, content)


def test_rules_of_several_keys_columns_and_times_are_left_to_the_reader(tmp_path: Path) -> None:
    """Why a schema alone is not enough."""
    for content in (changed(sink__mode="upsert"), changed(source__schema="id strin"), changed(schedule="every day")):
        assert takes(content)
        assert not is_read(tmp_path, content)


def list_sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model, and the sections below it."""
    yield model
    for each in model.model_fields.values():
        if (section := find_section(each.annotation)) is not None:
            yield from list_sections(section)


SECTIONS = {*list_sections(PipelineConfig), *KINDS, CheckEntry, SuiteEntry}


def test_each_key_of_each_model_is_in_the_schema_with_its_meaning_and_no_other() -> None:
    definitions = {**SCHEMA["$defs"], "PipelineConfig": SCHEMA}
    for model in SECTIONS:
        properties = definitions[model.__name__]["properties"]
        assert list(properties) == [field.alias or name for name, field in model.model_fields.items()]
        assert [key for key, about in properties.items() if not about.get("description")] == []
        required = [field.alias or name for name, field in model.model_fields.items() if field.is_required()]
        assert definitions[model.__name__].get("required", []) == required
        assert definitions[model.__name__]["additionalProperties"] is (model is CheckEntry)


def test_key_without_a_text_below_it_has_no_meaning() -> None:
    """Negative control."""
    assert read_meanings(_Undescribed) == {"named": "With a text."}


class _Undescribed(Section):
    named: int
    """With a
    text."""
    unnamed: int


def test_default_is_what_a_file_would_have() -> None:
    defaults = {
        f"{name}.{key}": about["default"]
        for name, section in SCHEMA["$defs"].items()
        for key, about in section.get("properties", {}).items()
        if "default" in about
    }
    assert defaults["LimitsConfig.max_delay"] == "5m"
    assert defaults["SourceConfig.holes"] == "none"
    assert "LimitsConfig.target_duration" not in defaults
    for text in ("1s", "90s", "1m", "2h", "7d"):
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]
        assert write_duration(float(text[:-1]) * unit) == text
