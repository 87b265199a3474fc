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
from typing_extensions import override

# Great Expectations knows the classes of the statistical checks by type once they are imported.
from batchledger.adapters.expectations import statistics  # noqa: F401
from batchledger.adapters.expectations.integrity import ExpectFactToBeZero
from batchledger.adapters.expectations.ledger import ExpectFactsWithinLimit
from batchledger.model.checks import CheckResult, Outcome, Suite

# Earlier versions had a class for each check, under whose types results are stored.
_TYPE_BY_SUITE = {
    Suite.INTEGRITY: ExpectFactToBeZero.expectation_type,
    Suite.LEDGER: ExpectFactsWithinLimit.expectation_type,
}


class _View(DefaultJinjaComponentView):
    """Great Expectations' own, which escapes the parameters of its sentences and nothing else.

    Everything is escaped when it is restored; otherwise parameters would be twice.
    """

    @staticmethod
    @override
    def _escape_template_param_value(value: Any) -> Any:
        return value


def render_results(checks: Sequence[CheckResult], prefix: str) -> Markup | None:
    """Return the table of Great Expectations over the checks that passed or failed; None when there is none.

    Left out is what says nothing of the data (a check that could not run, or had nothing to judge, which Great
    Expectations would call a failure and a success), and an expectation whose class is not loaded. ``prefix`` begins
    the ids of the elements.
    """
    judged = [each for each in checks if each.outcome in (Outcome.PASSED, Outcome.FAILED)]
    results = [each for check in judged if (each := restore(check)) is not None]
    if not results:
        return None
    block: Any = ValidationResultsTableContentBlockRenderer.render(results)
    view: Any = _View()
    table: str = view.render({"content_block": block.to_json_dict()})
    # All texts were escaped by restore. Ids are unique on a page with several tables.
    return Markup(table.replace('id="content-block', f'id="{prefix}'))  # noqa: S704


def restore(check: CheckResult) -> ExpectationValidationResult | None:
    """Return the result that was stored as Great Expectations had serialised it, its texts escaped for HTML.

    None where nothing is stored, or the class is not loaded. The suite decides about the class of the platform's own
    checks, and their name about the words: so results of earlier versions are told, too.
    """
    if check.validation is None:
        return None
    parts = _escape(check.validation)
    config = parts["expectation_config"]
    if check.suite in _TYPE_BY_SUITE:
        config |= {"type": _TYPE_BY_SUITE[check.suite], "meta": {"check": check.name}}
    try:
        get_expectation_impl(config["type"])
    except ExpectationNotFoundError:
        return None
    return ExpectationValidationResult(**{**parts, "expectation_config": ExpectationConfiguration(**config)})


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
