"""From the transform of a pipeline file to a function of DataFrames.

A module beside the pipeline file is run from the text that was read with the file. Its functions travel to Spark's
workers by value, with each job, so nothing of an older text stays in a session that is kept.
"""

import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from types import ModuleType

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from batchledger.model.errors import ConfigurationError
from batchledger.model.records.row_query import ROWS, RowQuery
from batchledger.model.records.transforms import PythonTransform, Transform
from batchledger.source.spark.failures import name_failure
from batchledger.source.spark.reduction import MOST_CHARACTERS, describe_raised

ChangeRows = Callable[[DataFrame], DataFrame]


def load_transform(transform: Transform, required: Sequence[str]) -> ChangeRows:
    """Return the function; SQL keeps the ``required`` columns by itself. Raises ConfigurationError."""
    if isinstance(transform, RowQuery):
        return partial(_select, transform, required)
    name, _, function = transform.reference.partition(":")
    try:
        module = importlib.import_module(name) if transform.text is None else _run_module(transform)
        change: ChangeRows = getattr(module, function)
    except (ImportError, AttributeError) as error:
        beside = f" There is no {transform.file} either." if transform.file and transform.text is None else ""
        raise ConfigurationError(
            f"Transform {transform.reference!r} cannot be loaded.",
            why=f"{error}.{beside}",
            advice="Write it as module:function. Put module.py into the folder of the pipeline file, or install the "
            "module where the pipeline runs."
            if transform.text is None
            else f"Correct {transform.file}. It may import installed modules, and none that lies beside it.",
            subject=transform.reference,
        ) from error
    return change


def _run_module(transform: PythonTransform) -> ModuleType:
    """Return the module that the text makes, under a name of its own: another text is another module.

    It has a place in ``sys.modules``, where dataclasses look for it.
    """
    text, file = str(transform.text), str(transform.file)
    name = f"batchledger_transform_{sha256(f'{file} {text}'.encode()).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = file
    try:
        exec(compile(text, file, "exec"), vars(module))  # noqa: S102 -- It is the person's own code.
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ImportError) or not isinstance(error, Exception):
            raise
        raise ConfigurationError(
            f"Transform {transform.reference!r} cannot be loaded.",
            why=f"{describe_raised(error)}.",
            advice=f"Correct {file}.",
            quoted="".join(traceback.format_exception(error))[-MOST_CHARACTERS:],
            subject=transform.reference,
        ) from None
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call] # As pyspark ships it.
    return module


def _select(query: RowQuery, required: Sequence[str], rows: DataFrame) -> DataFrame:
    """Apply the condition, then the items. Raises ConfigurationError if Spark refuses them, or reads other columns."""
    rows = rows.alias(ROWS)
    try:
        found = rows if query.condition is None else rows.where(query.condition)
        made = found.selectExpr(*query.items, *query.list_carried(required))
        columns = made.columns
    except AnalysisException as error:
        raise ConfigurationError(
            "Spark refuses transform.sql. Nothing is visible.",
            why=f"{name_failure(error).rstrip('.;')}.",
            advice="Correct transform.sql in the pipeline file.",
        ) from None
    if not query.is_answered_by(columns):
        raise ConfigurationError(
            "Spark reads transform.sql in another way than Batchledger. Nothing is visible.",
            why=f"It makes the columns {', '.join(columns)} of it.",
            advice="Write transform.sql more simply, or as a function of Python.",
        )
    return made
