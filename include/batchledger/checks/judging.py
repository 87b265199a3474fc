"""Lets Great Expectations judge, in memory only: it writes nothing to a disk, and shows no progress bar."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import great_expectations as gx
import pandas as pd
from great_expectations.core import ExpectationValidationResult
from great_expectations.data_context import AbstractDataContext
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.datasource.fluent.interfaces import Batch
from great_expectations.expectations.expectation import Expectation


def open_context() -> AbstractDataContext:
    """Return a new context, without its usual temporary folder for pages, and without its chatter in a task's log."""
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=ProgressBarsConfig(globally=False),
    )
    return gx.get_context(mode="ephemeral", project_config=config)


def validate(
    batch: Batch, expectations: Sequence[Expectation], result_format: Mapping[str, Any]
) -> Mapping[str, ExpectationValidationResult]:
    """Return the results by ``check`` in the ``meta`` of each expectation, which is unique."""
    suite = gx.ExpectationSuite(name="checks", expectations=list(expectations))
    results = batch.validate(suite, result_format=dict(result_format)).results
    return {str((each.expectation_config.meta or {})["check"]): each for each in results if each.expectation_config}


def judge_table(
    table: pd.DataFrame, expectations: Mapping[str, Expectation], result_format: Mapping[str, Any]
) -> Mapping[str, ExpectationValidationResult | str]:
    """Judge a small table by expectations of its columns, by name: the ``check`` in the ``meta`` of each.

    A check that could not run has neither passed nor failed: the reason stands in the place of its result. The reason
    may quote the table, so the table must hold no value of a record.
    """
    if not expectations:
        return {}
    try:
        batch = open_context().data_sources.add_pandas("facts").read_dataframe(table, asset_name="facts")
        results = validate(batch, list(expectations.values()), result_format)
    except Exception as error:  # noqa: BLE001 -- The library raises anything, and it says nothing of the data.
        return dict.fromkeys(expectations, f"{type(error).__name__}: {error}")
    return {name: _require_judged(results.get(name)) for name in expectations}


def _require_judged(result: ExpectationValidationResult | None) -> ExpectationValidationResult | str:
    if result is None:
        return "Great Expectations has no result of it"
    if result.exception_info.get("raised_exception") or "unexpected_count" not in result.result:
        return str(result.exception_info.get("exception_message"))
    return result
