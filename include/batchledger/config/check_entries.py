"""The ``checks`` of a pipeline file: what an entry may say, and what its arguments may be.

Types and arguments are validated against the JSON schemas that Great Expectations ships, so a fault shows while a DAG
file is parsed. The library itself is not imported, because that takes seconds. A class of one's own is only looked up
here: the stage step checks its arguments before it stages a batch.
"""

import ast
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.annotated_handlers import GetJsonSchemaHandler

from batchledger.config.documents import find_inside, read_json, read_module
from batchledger.config.places import pipelines_folder
from batchledger.model.checks import MOST_COMPARED, OnFailure, RequestedCheck, Severity
from batchledger.model.quoting import quote, shorten
from batchledger.settings.values import REFERENCE, Section

ENTRY_BY_CHECK = "entry_by_check"
"""The key of the context under which a validation finds a list, and leaves the number of the entry of each check."""
_DATABASE = "PostgreSQL"
# What GX calls a map of columns, and yet judges by aggregates: there are no failing rows to be named.
_AGGREGATED = (
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
    "expect_column_values_to_not_be_outliers",
    "expect_compound_columns_to_be_unique",
)
# These read other data sources or tables than the batch.
_ABOUT_OTHERS = ("expect_query_results_to_match_comparison", "expect_table_row_count_to_equal_other_table")
# What an entry says beside the arguments is said to Batchledger, not to GX.
_NOT_ARGUMENTS = (
    "id", "meta", "notes", "result_format", "description", "catch_exceptions", "rendered_content", "severity",
    "windows", "batch_id", "metadata",
)  # fmt: skip

_RATIO: Mapping[str, Any] = {"type": "number", "minimum": 0}
_SHARE: Mapping[str, Any] = {"type": "number", "minimum": 0, "maximum": 1}
_BATCHES: Mapping[str, Any] = {"type": "integer", "minimum": 5, "maximum": MOST_COMPARED}
_OWN: Mapping[str, tuple[Mapping[str, Any], Sequence[str]]] = {
    "expect_batch_rows_to_be_near_recent": (
        {"batches": _BATCHES, "min_ratio": _RATIO, "max_ratio": _RATIO},
        (),
    ),
    "expect_newest_record_to_be_younger_than": (
        {"max_age": {"type": "string", "pattern": r"^\d+\s*[smhd]$"}},
        ("max_age",),
    ),
    "expect_share_quarantined_to_be_at_most": ({"max_share": _SHARE}, ("max_share",)),
    "expect_column_distribution_to_stay_near_recent": (
        {"column": {"type": "string", "minLength": 1}, "batches": _BATCHES, "max_distance": _SHARE},
        ("column", "max_distance"),
    ),
}
"""The expectations that compare batches: their arguments, and which of them are required."""

_CUSTOM = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")


class _KnownType:
    """Lets a schema of the file list the types. They are read only if a schema is made."""

    @staticmethod
    def __get_pydantic_json_schema__(schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        of_ones_own = {**handler(schema), "pattern": f"^{REFERENCE}$"}
        return {"anyOf": [{"enum": sorted((*find_types(), *_OWN))}, of_ones_own]}


class CheckEntry(BaseModel):
    """One check; every key that is none of these fields is an argument of the expectation."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    type: Annotated[str, _KnownType]
    """An expectation that works in PostgreSQL, or `module:Class`, a class of your own."""
    severity: Annotated[Severity, Field(strict=False)] = Severity.CRITICAL
    """What a failure does: a critical check keeps the batch from being published, a warning and an info do not."""
    on_failure: Annotated[OnFailure, Field(strict=False)] | None = None
    """What a failed critical check does; `on_check_failure` if it is not set."""

    @property
    def arguments(self) -> dict[str, Any]:
        """What the expectation is given."""
        return dict(self.model_extra or {})

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the arguments name."""
        arguments = self.arguments
        names = [arguments[key] for key in ("column", "column_A", "column_B") if key in arguments]
        listed = arguments.get("column_list", [])
        return tuple(str(each) for each in [*names, *(listed if isinstance(listed, list) else [])])

    @property
    def is_row_level(self) -> bool | None:
        """Whether failing rows can be named; None of a class of one's own, which has not been looked at."""
        return None if _CUSTOM.fullmatch(self.type) else self.type in find_types() and _is_row_level(self.type)

    @model_validator(mode="after")
    def _is_known(self, info: ValidationInfo) -> "CheckEntry":
        if self.on_failure is not None and self.severity is not Severity.CRITICAL:
            raise ValueError(f"on_failure says what a critical check does; with severity {self.severity} leave it out")
        custom = _CUSTOM.fullmatch(self.type)
        if custom is not None:
            _require_class(custom["module"], custom["name"], (info.context or {}).get("folder"))
            return self
        if self.type not in (*find_types(), *_OWN):
            raise ValueError(f"type: {quote(self.type)} is not an expectation; {_nearest(self.type)}")
        self._require_arguments()
        return self

    def _require_arguments(self) -> None:
        # Imported here because it is slow, and only pipelines with checks need it.
        from jsonschema import Draft7Validator

        properties, required = _OWN.get(self.type) or _read_schema(self.type)
        found = {name: as_json(value) for name, value in self.arguments.items()}
        for name, value in found.items():
            if name not in properties:
                close = difflib.get_close_matches(name, [*properties, *CheckEntry.model_fields], n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"allowed: {', '.join(properties)}"
                raise ValueError(f"{self.type} has no argument {quote(name)}; {hint}")
            fault = next(iter(Draft7Validator(properties[name]).iter_errors(value)), None)
            if fault is not None:
                raise ValueError(f"{self.type}: {name}: {quote(value)} is not allowed: {_explain(fault)}")
        if self.type == "expect_batch_rows_to_be_near_recent" and not {"min_ratio", "max_ratio"} & set(found):
            raise ValueError(f"{self.type} needs the argument 'min_ratio' or 'max_ratio'")
        missing = [name for name in required if name not in found]
        if missing:
            raise ValueError(f"{self.type} needs the argument {missing[0]!r}")


class SuiteEntry(Section):
    """All checks of a suite file."""

    suite: str
    """A suite of Great Expectations as JSON, in the folder of the pipeline file."""
    severity: Annotated[Severity, Field(strict=False)] | None = None
    """The severity of all its checks, if their `meta` says nothing else."""
    on_failure: Annotated[OnFailure, Field(strict=False)] | None = None
    """What a failure of its critical checks does."""


def expand_suites(value: object, info: ValidationInfo) -> object:
    """Put the expectations of a suite file in the place of its entry. Raises ValueError."""
    if not isinstance(value, list):
        return value
    context = info.context or {}
    entries: list[object] = []
    for number, each in enumerate(value):
        is_suite = isinstance(each, dict) and "suite" in each
        found = _read_suite(each, context.get("folder") or pipelines_folder()) if is_suite else [each]
        entries += found
        context.get(ENTRY_BY_CHECK, []).extend([number] * len(found))
    return entries


def name_checks(entries: Sequence[CheckEntry], default: OnFailure) -> tuple[RequestedCheck, ...]:
    """Return the checks with names of their own: ``type(column)``, and a number after a name that is there already."""
    named: dict[str, RequestedCheck] = {}
    for each in entries:
        columns = each.columns
        plain = f"{each.type}({', '.join(columns)})" if columns else each.type
        name, number = plain, 1
        while name in named:
            number += 1
            name = f"{plain} #{number}"
        on_failure = (each.on_failure or default) if each.severity is Severity.CRITICAL else OnFailure.BLOCK
        named[name] = RequestedCheck(name, each.type, each.arguments, each.severity, on_failure)
    return tuple(named.values())


@cache
def find_types() -> frozenset[str]:
    """Return the types of Great Expectations that can be judged on the staged rows."""
    index = json.loads((_schemas() / "index.json").read_text(encoding="utf-8"))
    return frozenset(
        name
        for name, about in index["expectations"].items()
        if _DATABASE in about["supported_data_sources"] and name not in _ABOUT_OTHERS
    )


def _schemas() -> Path:
    spec = find_spec("great_expectations")
    if spec is None or spec.origin is None:
        raise ValueError("Great Expectations is not installed, so that no check can be asked for")
    return Path(spec.origin).parent / "expectations" / "core" / "schemas"


@cache
def _load_schema(type_: str) -> dict[str, Any]:
    index = json.loads((_schemas() / "index.json").read_text(encoding="utf-8"))
    file = index["expectations"][type_]["schema_file"]
    schema: dict[str, Any] = json.loads((_schemas() / file).read_text(encoding="utf-8"))
    return schema


@cache
def _read_schema(type_: str) -> tuple[Mapping[str, Any], Sequence[str]]:
    """Return the schema of each argument of an expectation, and which of them are required."""
    schema = _load_schema(type_)
    properties = {
        name: {**about, "definitions": schema.get("definitions", {})}
        for name, about in schema["properties"].items()
        if name not in _NOT_ARGUMENTS
    }
    # The schemas are made for a form; the library itself takes any share, and sets of what a column may hold.
    properties.get("mostly", {}).pop("multipleOf", None)
    if "value_set" in properties:
        properties["value_set"] = {"type": ["array", "object"], "minItems": 1}
    return properties, schema.get("required", [])


def _is_row_level(type_: str) -> bool:
    kind = _load_schema(type_)["properties"]["metadata"]["properties"]["domain_type"].get("description", "")
    return kind.endswith(" Map") and type_ not in _AGGREGATED


def _read_suite(entry: Mapping[str, Any], folder: Path) -> list[object]:
    unknown = sorted(set(entry) - set(SuiteEntry.model_fields))
    if unknown:
        raise ValueError(f"{quote(unknown[0])} cannot be said of a suite; allowed: severity, on_failure")
    name = entry["suite"]
    try:
        expectations = _require_expectations(read_json(find_inside(folder, name)))
    except (OSError, ValueError) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else _reason(error)
        raise ValueError(f"suite {quote(name)} is not a suite of Great Expectations: {reason}") from None
    of_all = {name: entry[name] for name in ("severity", "on_failure") if name in entry}
    return [_read_expectation(each, of_all) for each in expectations]


def _reason(error: OSError | ValueError) -> str:
    """Return what the system says, without the path: that is the file's own text."""
    return str(error.strerror if isinstance(error, OSError) else error)


def _require_expectations(content: Any) -> list[dict[str, Any]]:
    """Return the expectations of a suite. Raises ValueError, which quotes nothing: the file may be of another kind."""
    expectations = content.get("expectations") if isinstance(content, dict) else None
    if isinstance(expectations, list):
        wrong = [number for number, each in enumerate(expectations, 1) if not _is_expectation(each)]
        if not wrong:
            return expectations
        raise ValueError(f"expectation {wrong[0]} is no object with a type, and with objects as kwargs and meta")
    raise ValueError("it has no list of expectations")


def _is_expectation(each: Any) -> bool:
    if not isinstance(each, dict) or not isinstance(each.get("type"), str):
        return False
    return all(isinstance(each.get(key) or {}, dict) for key in ("kwargs", "meta"))


def _read_expectation(expectation: Mapping[str, Any], of_all: Mapping[str, Any]) -> dict[str, Any]:
    meta = expectation.get("meta") or {}
    own = {name: meta[name] for name in ("severity", "on_failure") if name in meta}
    # Great Expectations writes "critical" even if no person has asked for it, so the entry wins.
    exported = {"severity": expectation["severity"]} if expectation.get("severity") else {}
    said = {**exported, **of_all, **own}
    if "severity" not in of_all and said.get("severity", Severity.CRITICAL) != Severity.CRITICAL:
        # What a failure does, the entry says of the critical ones.
        said = {name: value for name, value in said.items() if name == "severity" or name in own}
    return {**(expectation.get("kwargs") or {}), "type": expectation["type"], **said}


def _require_class(module: str, name: str, folder: Path | None) -> None:
    try:
        text = read_module(folder or pipelines_folder(), module)
    except ValueError as error:
        raise ValueError(f"type: {error}") from None
    if text is None:
        if find_spec(module.partition(".")[0]) is None:
            raise ValueError(
                f"type: there is no module {quote(module)}, neither beside the pipeline file nor importable"
            )
        return
    classes = [each.name for each in ast.walk(ast.parse(text)) if isinstance(each, ast.ClassDef)]
    if name not in classes:
        known = shorten(", ".join(classes) or "none")
        raise ValueError(f"type: {module}.py has no class {quote(name)}; it has {known}")


def _nearest(type_: str) -> str:
    close = difflib.get_close_matches(type_, [*find_types(), *_OWN], n=1)
    return f"did you mean {close[0]!r}?" if close else "write one of Great Expectations, or module:Class"


def as_json(value: Any) -> Any:
    """Return what YAML made of a value as JSON would have it: dates as text."""
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return {key: as_json(each) for key, each in value.items()} if isinstance(value, dict) else value


def _explain(fault: Any) -> str:
    """Return the fault of an argument in one line; of alternatives, what the one of this type or all ask for."""
    of_this_type = [each for each in fault.context if each.validator != "type"]
    if of_this_type:
        return str(of_this_type[0].message)
    if fault.validator in ("anyOf", "oneOf"):
        kinds = {each.get("type", each.get("title", "an object")) for each in fault.validator_value}
        return f"allowed: {', '.join(sorted(map(str, kinds)))}"
    return str(fault.message)
