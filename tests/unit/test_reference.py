"""The reference of the pipeline file is the code: every key once, with its default, and no key that does not exist."""

import re
from enum import Enum
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from batchledger.config import schedules, sections
from batchledger.config.pipeline_file import PipelineConfig
from batchledger.sinks.kinds import KINDS
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "reference" / "pipeline-file.md").read_text(encoding="utf-8")
KIND_BY_TYPE = {get_args(each.model_fields["type"].annotation)[0]: each for each in KINDS}
SECTIONS = {
    "start_on_records": schedules.StartOnRecordsConfig,
    "source": sections.SourceConfig,
    "limits": sections.LimitsConfig,
    "dedupe": sections.DedupeConfig,
    "sequence": sections.SequenceConfig,
    "quarantine": sections.QuarantineConfig,
    "history": sections.HistoryConfig,
    "audit": sections.AuditConfig,
    "deadlines": sections.DeadlinesConfig,
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_defaults(text: str) -> dict[str, str]:
    """The default of each key of the tables, as the page writes it. Raises ValueError if a key is there twice."""
    rows = re.findall(r"(?m)^\| `([\w.]+)` \| (\*\w+\*|`[^`]+`) \|", text)
    if len(dict(rows)) < len(rows):
        raise ValueError(f"a key is there twice: {sorted(key for key, _ in rows)}")
    return dict(rows)


def write_default(model: type[BaseModel], name: str) -> str:
    """A default as the page has to write it."""
    field = model.model_fields[name]
    if field.is_required():
        return "*required*"
    value: Any = field.get_default(call_default_factory=True)
    if value is None or value in ([], {}):
        return "*none*"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        unit = next(each for each in ("d", "h", "m", "s") if value % _SECONDS[each] == 0 and value >= _SECONDS[each])
        value = "60s" if value == 60 else f"{value / _SECONDS[unit]:.0f}{unit}"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def list_keys(model: type[BaseModel], prefix: str) -> dict[str, str]:
    fields = model.model_fields.items()
    return {f"{prefix}{field.alias or name}": write_default(model, name) for name, field in fields}


def test_every_key_but_those_of_sinks_is_on_the_page_with_its_default() -> None:
    page = read_defaults(_without_sinks())
    own = {key: default for key, default in list_keys(PipelineConfig, "").items() if key not in {*SECTIONS, "sink"}}
    of_sections = [list_keys(model, f"{prefix}.") for prefix, model in SECTIONS.items()]
    assert page == own | {key: default for each in of_sections for key, default in each.items()}


@pytest.mark.parametrize("kind", KIND_BY_TYPE)
def test_every_key_of_a_sink_is_in_its_table_with_its_default(kind: str) -> None:
    assert read_defaults(_about_sink(kind)) == list_keys(KIND_BY_TYPE[kind], "sink.")


def _about_sink(kind: str) -> str:
    """The chapter of a kind. Without one, the failure says which rows it needs."""
    chapters = re.findall(r"(?ms)^## sink: .*?(?=^## |\Z)", TEXT)
    return next((each for each in chapters if re.search(rf"(?m)^\| `sink\.type` \|.*`{kind}`", each)), "")


def _without_sinks() -> str:
    return re.sub(r"(?ms)^## sink: .*?(?=^## (?!sink))", "", TEXT)


def test_sections_are_all_that_the_file_has() -> None:
    """So a section that joins is missed here."""
    named = {name for name, field in PipelineConfig.model_fields.items() if _is_section(field.annotation)}
    assert named == {*SECTIONS, "sink"}


def _is_section(annotation: Any) -> bool:
    kinds = getattr(annotation, "__args__", (annotation,))
    return any(isinstance(each, type) and issubclass(each, sections.Section) for each in kinds)


def test_wrong_default_and_missing_key_are_noticed() -> None:
    """Negative control."""
    wrong = _without_sinks().replace("| `limits.min_records` | `1` |", "| `limits.min_records` | `2` |")
    assert read_defaults(wrong)["limits.min_records"] != write_default(sections.LimitsConfig, "min_records")
    assert "source.start" not in read_defaults(_without_sinks().replace("| `source.start` |", "| source.start |"))
