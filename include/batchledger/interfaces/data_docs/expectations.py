"""Results of checks as Great Expectations' own renderers show them, from what the ledger has stored of them.

The stored results hold no values of records, so the tables hold none. What a pipeline file says (descriptions, names of
columns, sets of values) is text to them, whatever it looks like.
"""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from great_expectations.core import ExpectationValidationResult
from great_expectations.exceptions import ExpectationNotFoundError
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.registry import get_expectation_impl
from great_expectations.render.renderer.content_block import ValidationResultsTableContentBlockRenderer
from great_expectations.render.view import DefaultJinjaComponentView
from markupsafe import Markup

# Imported so that Great Expectations knows their classes by type.
from batchledger.adapters.expectations import (
    statistics,  # noqa: F401
)
from batchledger.model.checks import CheckResult, Outcome


class _View(DefaultJinjaComponentView):
    """Great Expectations' own, which escapes the parameters of its sentences and nothing else.

    Everything is escaped when it is restored; otherwise parameters would be twice.
    """

    @staticmethod
    def _escape_template_param_value(value: Any) -> Any:
        return value


def render_results(checks: Sequence[CheckResult], prefix: str) -> Markup | None:
    """Return the table of Great Expectations over the checks that passed or failed; None when there is none.

    Left out is what says nothing of the data (a check that could not run, or had nothing to judge, which Great
    Expectations would call a failure and a success), and an expectation whose class is not loaded. ``prefix`` begins
    the ids of the elements.
    """
    judged = [each for each in checks if each.outcome in (Outcome.PASSED, Outcome.FAILED)]
    results = [restore(each.validation) for each in judged if each.validation and _is_known(each.validation)]
    if not results:
        return None
    block: Any = ValidationResultsTableContentBlockRenderer.render(results)
    view: Any = _View()
    table: str = view.render({"content_block": block.to_json_dict()})
    # All texts were escaped by restore. Ids are unique on a page with several tables.
    return Markup(table.replace('id="content-block', f'id="{prefix}'))  # noqa: S704


def restore(validation: Mapping[str, Any]) -> ExpectationValidationResult:
    """Return the result that was stored as Great Expectations had serialised it, its texts escaped for HTML."""
    parts = _escape(validation)
    return ExpectationValidationResult(
        **{**parts, "expectation_config": ExpectationConfiguration(**parts["expectation_config"])}
    )


def _escape(value: Any) -> Any:
    """Return the value of JSON with its texts escaped, names included."""
    match value:
        case str():
            return html.escape(value)
        case Mapping():
            return {_escape(name): _escape(each) for name, each in value.items()}
        case list() | tuple():
            return [_escape(each) for each in value]
        case _:
            return value


def _is_known(validation: Mapping[str, Any]) -> bool:
    try:
        get_expectation_impl(validation["expectation_config"]["type"])
    except ExpectationNotFoundError:
        return False
    return True
