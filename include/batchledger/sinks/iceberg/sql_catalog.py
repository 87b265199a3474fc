"""The catalog in a database: PyIceberg's, with the sessions of PostgreSQL that all parts have."""

from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event
from typing_extensions import override

from batchledger.database.sessions import pin


class PinnedSqlCatalog(SqlCatalog):
    """Its waits are bounded, too.

    Otherwise a process that is paused between its UPDATE and its COMMIT would hold every batch of its table.
    """

    @override
    def _init_catalog(self) -> None:
        # PyIceberg calls this first with the engine, before it looks for its tables.
        if self.engine.dialect.name == "postgresql":
            event.listen(self.engine, "connect", _pin)
        super()._init_catalog()


def _pin(connection: Any, _: object) -> None:
    pin(connection)
    connection.commit()
