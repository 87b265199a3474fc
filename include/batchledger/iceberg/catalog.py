"""Catalogs of Iceberg: how one is opened, and what its errors mean."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError

from batchledger.errors import BatchledgerError, ServiceUnavailableError, TargetChangedError


@dataclass(frozen=True)
class LakeCatalog:
    """A catalog by its name and PyIceberg's own properties of it.

    Spark finds the tables of a JDBC catalog under the same name only.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)

    @cached_property
    def opened(self) -> Catalog:
        """The catalog; one in a database makes its tables there."""
        try:
            return load_catalog(self.name, **self.properties)
        except (IntegrityError, ProgrammingError):
            # Somebody else created its tables at the same time.
            return load_catalog(self.name, **self.properties)

    def rest(self) -> None:
        """Close the connections of a catalog in a database: nobody knows when it is asked again."""
        engine = getattr(self.opened, "engine", None)
        if engine is not None:
            engine.dispose()


@contextmanager
def translate_errors(doing: str, table: str) -> Iterator[None]:
    """Turn what PyIceberg raises, outside of a commit, into errors that say what to do."""
    try:
        yield
    except BatchledgerError:
        raise
    except NoSuchTableError as error:
        raise TargetChangedError(
            f"table {table} is gone: could not {doing}. Bring it back, or read the source again under a new pipeline "
            "name.",
            table=table,
        ) from error
    except (ValidationError, ValueError, TypeError, NotImplementedError) as error:
        raise TargetChangedError(f"table {table}: could not {doing}: {_first_line(error)}", table=table) from error
    except (CommitFailedException, TableAlreadyExistsError, SQLAlchemyError, RESTError, OSError) as error:
        raise ServiceUnavailableError(
            f"could not {doing}: the catalog or the files of table {table} do not answer: {_first_line(error)}. "
            "Nothing was published.",
            table=table,
        ) from error


def _first_line(error: Exception) -> str:
    # What SQLAlchemy adds of its own holds the statement.
    inner = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(inner).strip().split("\n", 1)[0]
