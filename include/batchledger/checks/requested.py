"""Builds expectations from the checks of a pipeline file: Great Expectations' own, and the user's classes."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from great_expectations import expectations as gxe
from great_expectations.exceptions import GreatExpectationsError
from great_expectations.expectations.expectation import (
    ColumnAggregateExpectation,
    ColumnMapExpectation,
    ColumnPairMapExpectation,
    Expectation,
    MulticolumnMapExpectation,
    QueryExpectation,
)
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl

from batchledger.model.checks import OnFailure, RequestedCheck
from batchledger.model.errors import ConfigurationError

_MAPS = (ColumnMapExpectation, ColumnPairMapExpectation, MulticolumnMapExpectation)
# Their class is a map, but aggregates judge them: no failing rows can be named.
_AGGREGATED = (
    gxe.ExpectColumnValuesToBeOfType,
    gxe.ExpectColumnValuesToBeInTypeList,
    gxe.ExpectColumnValuesToNotBeOutliers,
    gxe.ExpectCompoundColumnsToBeUnique,
)
_MODULES = "batchledger_checks_of"


@dataclass(frozen=True)
class BuiltCheck:
    """A check and the expectation that judges it."""

    check: RequestedCheck
    expectation: Expectation

    @property
    def is_row_level(self) -> bool:
        """Whether failing rows can be named."""
        return is_row_level(type(self.expectation))

    @property
    def needs_rows(self) -> bool:
        """Whether it says something about rows or their values, so that without rows it has nothing to judge."""
        return isinstance(self.expectation, (*_MAPS, ColumnAggregateExpectation, QueryExpectation))

    @property
    def sets_aside(self) -> bool:
        """Whether its failing rows are to be set aside."""
        return self.check.on_failure is OnFailure.QUARANTINE


def is_row_level(kind: type[Expectation]) -> bool:
    """Whether expectations of the class name failing rows; ``check_entries`` says the same without the classes."""
    return issubclass(kind, _MAPS) and not issubclass(kind, _AGGREGATED)


def build_checks(checks: Sequence[RequestedCheck], folder: Path) -> tuple[BuiltCheck, ...]:
    """Return an expectation for each check; the user's modules lie in ``folder`` or are importable.

    Raises ConfigurationError, which names the check.
    """
    return tuple(_build(each, folder) for each in checks)


def _build(check: RequestedCheck, folder: Path) -> BuiltCheck:
    kind = _find_class(check, folder)
    arguments = dict(check.arguments)
    if isinstance(arguments.get("row_condition"), str):
        # Otherwise only the database would look at the text.
        arguments.setdefault("condition_parser", "great_expectations")
    try:
        expectation = kind(**arguments, meta={"check": check.name}, severity=FailureSeverity(check.severity.value))
    except (ValueError, TypeError, GreatExpectationsError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:]) or str(error)
        raise ConfigurationError(
            f"Check {check.name} cannot be built from its arguments. Nothing was staged.",
            why=f"{reason}.",
            advice="Correct the pipeline file.",
            subject=check.name,
        ) from error
    built = BuiltCheck(check, expectation)
    if built.sets_aside and not built.is_row_level:
        raise ConfigurationError(
            f"Check {check.name} names no failing rows, so none can be set aside.",
            advice="Write on_failure: block, or on_failure: publish.",
            subject=check.name,
        )
    return built


def _find_class(check: RequestedCheck, folder: Path) -> type[Expectation]:
    module_name, colon, name = check.type.partition(":")
    if not colon:
        found: type[Expectation] = get_expectation_impl(check.type)
        return found
    try:
        kind = getattr(_load_module(module_name, folder), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigurationError(
            f"Check {check.name}: {check.type} cannot be loaded.",
            why=f"{error}.",
            advice=f"Write it as module:Class. The module lies beside the pipeline file, in {folder}, or is "
            "importable where the pipeline runs.",
            subject=check.name,
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, Expectation)):
        raise ConfigurationError(
            f"Check {check.name}: {check.type} is no Expectation of Great Expectations.",
            advice="Make it a subclass of one, such as great_expectations.expectations.ExpectColumnValuesToBeInSet.",
            subject=check.name,
        )
    return kind


def _load_module(name: str, folder: Path) -> ModuleType:
    """Import a module that lies beside the pipeline file, under a name of its own, or else one of that name."""
    path = folder / f"{name}.py"
    if not path.is_file():
        return importlib.import_module(name)
    private = f"{_MODULES}_{path.resolve()}"
    if private not in sys.modules:
        spec = importlib.util.spec_from_file_location(private, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not a Python module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[private] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[private]
            raise
    return sys.modules[private]
