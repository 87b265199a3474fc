"""The ``transform`` of a pipeline file: SQL, or a function of a module beside the file or an installed one.

SQL is refused here, with the place of the fault. A module is looked for; nothing of it is run, and Spark is not
imported.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema
from typing_extensions import override

from batchledger.config.documents import read_module
from batchledger.model.quoting import quote
from batchledger.model.records.row_query import read_row_query
from batchledger.model.records.transforms import PythonTransform, Transform
from batchledger.settings.values import REFERENCE

_REFERENCE = re.compile(REFERENCE, re.ASCII)
_FORMS = "write module:function, such as shop.orders:clean, or SQL: {sql: select … from rows}"


@dataclass(frozen=True)
class SqlText:
    """The SQL as it is written."""

    sql: str

    @override
    def __str__(self) -> str:
        return "sql"


def _read_entry(value: object) -> object:
    if value is None or (isinstance(value, str) and _REFERENCE.fullmatch(value)):
        return value
    if isinstance(value, dict) and value.keys() == {"sql"} and isinstance(value["sql"], str):
        return SqlText(value["sql"])
    raise ValueError(_FORMS)


_WRITTEN = {
    "anyOf": [
        {"type": "string", "pattern": f"^{_REFERENCE.pattern}$"},
        {
            "type": "object",
            "properties": {"sql": {"type": "string", "description": "One SELECT over `rows`."}},
            "required": ["sql"],
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}
TransformEntry = Annotated[str | SqlText | None, BeforeValidator(_read_entry), WithJsonSchema(_WRITTEN)]


def find_transform(entry: str | SqlText | None, folder: Path, columns: Collection[str]) -> Transform | None:
    """Return what an entry means; ``columns`` are all of the rows before it. Raises ValueError in words."""
    match entry:
        case None:
            return None
        case SqlText():
            try:
                return read_row_query(entry.sql, columns)
            except ValueError as error:
                raise ValueError(f"transform.sql: {error}") from None
        case str():
            return _find_module(entry, folder)


def _find_module(reference: str, folder: Path) -> PythonTransform:
    """Find the module of a function. One of a package is installed; another one may lie beside the pipeline file."""
    name = reference.partition(":")[0]
    if "." in name:
        return PythonTransform(reference)
    try:
        text = read_module(folder, name)
    except ValueError as error:
        raise ValueError(f"transform: {error}") from None
    file, installed = (folder / f"{name}.py").resolve(), _find_installed(name)
    if text is not None and installed is not None and installed.resolve() != file:
        raise ValueError(
            f"transform: module {quote(name)} lies beside the pipeline file, and Python finds another one: "
            f"{installed}; rename the one beside the file"
        )
    return PythonTransform(reference, file, text)


def _find_installed(name: str) -> Path | None:
    """Return the file of a module that Python would import by this name; a built-in one has its name alone."""
    try:
        spec = find_spec(name)
    except ValueError:
        # A program that runs as __main__ has no specification.
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)
