"""What the columns of a pipeline file have to be where other keys of the file name them. Pure."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from batchledger.model.errors import ConfigurationError
from batchledger.model.quoting import quote, shorten
from batchledger.model.records.columns import Column
from batchledger.model.records.identifiers import explain_columns
from batchledger.model.records.protection import ColumnProtection, Protections
from batchledger.model.records.types import Integer


def nearest(name: str, allowed: list[str]) -> str:
    """Return in words which allowed name was probably meant, or all of them."""
    close = difflib.get_close_matches(name, allowed, n=1)
    return f"did you mean {close[0]!r}?" if close else shorten(f"allowed: {', '.join(allowed) or 'none'}")


def require_not_dropped(key: str, names: Iterable[str], protections: Protections) -> None:
    """Raise ValueError for a column that is declared, and that rows do not have."""
    for name in names:
        if protections.get(name) is ColumnProtection.DROP:
            raise ValueError(f"{key}: {quote(name)} is dropped by source.protect")


def require_declared(key: str, names: Iterable[str], columns: Sequence[Column]) -> None:
    """Raise ValueError for a name that no column has."""
    declared = [column.name for column in columns]
    for name in names:
        if name not in declared:
            raise ValueError(f"{key}: {quote(name)} is not a column of source.schema; {nearest(name, declared)}")


def require_scalar(key: str, names: Sequence[str], columns: Sequence[Column]) -> None:
    """Raise ValueError unless each name is a column without values within."""
    require_declared(key, names, columns)
    for each in columns:
        if each.name in names and not each.is_scalar:
            raise ValueError(f"{key}: {quote(each.name)} is a {each.type}; name a column without values within")


def require_integer(key: str, name: str, columns: tuple[Column, ...]) -> None:
    """Raise ValueError unless the name is a column of whole numbers."""
    require_declared(key, [name], columns)
    type_ = next(each.type for each in columns if each.name == name)
    numbers = tuple(Integer)
    if type_ not in numbers:
        allowed = ", ".join(map(str, numbers))
        raise ValueError(f"{key}: {quote(name)} is a {type_} in source.schema; numbers are {allowed}")


def require_telling(key: str, names: Iterable[str], protections: Protections) -> None:
    """Raise ValueError for a masked column: different values have the same mask, and would pass for one."""
    for name in names:
        if protections.get(name) is ColumnProtection.MASK:
            raise ValueError(f"{key}: {quote(name)} is masked: different values look the same; write hash in protect")


def require_row_columns(target: str, columns: Sequence[str], names_by_key: Mapping[str, Sequence[str]]) -> None:
    """Raise ConfigurationError when no table can have the columns of rows, or a key names another one."""
    fault = explain_columns(columns)
    if fault is not None:
        raise ConfigurationError(
            f"The rows for {target} cannot be staged. Nothing was written.",
            why=f"{fault}.",
            advice="Name or leave out the column in the transform, or correct source.schema.",
        )
    for key, names in names_by_key.items():
        for column in names:
            if column not in columns:
                raise ConfigurationError(
                    f"{key} names column {column!r}, which the rows for {target} do not have.",
                    why=f"They have {', '.join(columns)}.",
                    advice="Correct the key, or keep the column in the transform.",
                    subject=column,
                )
