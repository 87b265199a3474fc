"""Results of checks from the ledger, as Great Expectations' own renderers show them.

The stored results hold no values of records, so the tables hold none. Whatever a pipeline file says (descriptions,
names of columns, sets of values) is plain text here.
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

# The import makes the types of the statistical checks known to Great Expectations.
from batchledger.checks import statistics  # noqa: F401
from batchledger.checks.integrity import ExpectFactToBeZero
from batchledger.checks.ledger import ExpectFactsWithinLimit
from batchledger.model.checks import CheckResult, Outcome, Suite

# Earlier versions had a class for each check, and stored results under its type.
_TYPE_BY_SUITE = {
    Suite.INTEGRITY: ExpectFactToBeZero.expectation_type,
    Suite.LEDGER: ExpectFactsWithinLimit.expectation_type,
}


class _View(DefaultJinjaComponentView):
    """Great Expectations' own view, without its escaping of parameters.

    ``restore`` escapes everything; otherwise parameters would be escaped twice.
    """

    @staticmethod
    @override
    def _escape_template_param_value(value: Any) -> Any:
        return value


def render_results(checks: Sequence[CheckResult], prefix: str) -> Markup | None:
    """Return the table of Great Expectations over the checks that passed or failed; None if there is none.

    Checks that could not run or had nothing to judge are left out: Great Expectations would call them failures and
    successes. So are expectations whose class is not loaded. ``prefix`` begins the ids of the elements.
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
    """Return the stored result of a check, its texts escaped for HTML.

    None if nothing is stored, or if the class is not loaded. For the platform's own checks, the suite decides the class
    and the name decides the words; so results of earlier versions can be shown, too.
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
