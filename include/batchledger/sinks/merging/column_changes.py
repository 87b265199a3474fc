"""What a publication changes of the columns of its target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql


@dataclass(frozen=True)
class ColumnChanges:
    """Types by name: of columns that the table does not have, and of those that are wider in the rows."""

    added: Mapping[str, str]
    widened: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)

    @property
    def clauses(self) -> Sequence[sql.Composed]:
        """The changes as ALTER TABLE writes them."""
        add, widen = "add column {} " + "{}", "alter column {} type " + "{}"
        return [
            sql.SQL(form).format(sql.Identifier(name), sql.SQL(type_))
            for form, types in ((add, self.added), (widen, self.widened))
            for name, type_ in types.items()
        ]


NOTHING_CHANGES = ColumnChanges({}, {})
