"""Opens catalogs of Iceberg, and translates their errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
)
from requests import RequestException
from sqlalchemy import inspect, make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError

from batchledger.model.errors import BatchledgerError, ConfigurationError, ServiceUnavailableError, TargetChangedError
from batchledger.settings.connections import Connection
from batchledger.sinks.iceberg.connection import lake_catalog
from batchledger.sinks.iceberg.jdbc import jdbc_properties
from batchledger.sinks.iceberg.rest import BoundedRestCatalog, check_spark_tls

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


@dataclass(frozen=True)
class LakeCatalog:
    """A catalog by its name and its properties for PyIceberg.

    Spark finds the tables of a JDBC catalog under the same name only; ``spark`` are the properties that differ there.
    """

    name: str
    properties: Mapping[str, str] = field(repr=False)
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def opened(self) -> Catalog:
        """The catalog; one in a database makes its tables there. Raises ConfigurationError."""
        try:
            return self._open()
        except (IntegrityError, ProgrammingError):
            # Another process created its tables at the same time.
            return self._open()
        except (NotInstalledError, ImportError) as error:
            raise ConfigurationError(
                f"Catalog {self.name} cannot be opened.", why=f"{error}.", subject=self.name
            ) from error
        except ValueError as error:
            # A malformed address may hold a password.
            is_address = isinstance(error, RequestException)
            raise ConfigurationError(
                f"Catalog {self.name} cannot be opened with the properties of its connection, or the server there is "
                "no such catalog.",
                why=type(error).__name__ if is_address else _first_line(error),
                subject=self.name,
            ) from (None if is_address else error)

    def _open(self) -> Catalog:
        if self.properties.get("type") == "rest":
            return BoundedRestCatalog(self.name, **self.properties)
        if self.properties.get("type") == "sql":
            from batchledger.sinks.iceberg.sql_catalog import PinnedSqlCatalog

            return PinnedSqlCatalog(self.name, **self.properties)
        return load_catalog(self.name, **self.properties)

    def rest(self) -> None:
        """Close the connections of a catalog that was opened: the next question may come late."""
        opened = self.__dict__.get("opened")
        if opened is not None:
            opened.close()


def open_catalog(connection: Connection) -> LakeCatalog:
    """Return the catalog behind a connection. Opens nothing yet. Raises ConfigurationError."""
    return LakeCatalog(*lake_catalog(connection))


def describe_catalog(catalog: LakeCatalog, connection_id: str) -> str:
    """Return in words how many namespaces the catalog has. No tables of a catalog are made in a database.

    Raises ServiceUnavailableError and ConfigurationError.
    """
    asked = replace(catalog, properties={**catalog.properties, "init_catalog_tables": "false"})
    kind = catalog.properties["type"]
    try:
        with translate_errors("list the namespaces", f"behind connection {connection_id}"):
            if kind == "sql" and not inspect(cast("SqlCatalog", asked.opened).engine).has_table("iceberg_tables"):
                return "A database without a catalog yet: the first batch makes it"
            count = len(asked.opened.list_namespaces())
    finally:
        asked.rest()
    return f"Iceberg catalog of type {kind}, {count} namespace{'' if count == 1 else 's'}"


def spark_settings(catalog: LakeCatalog) -> dict[str, str]:
    """Return the settings with which a Spark session finds the same tables under the same name.

    Properties of REST, Hive and Glue, and most of object stores, have the same names there. The rest is in ``spark``,
    from the extra of the connection. Raises ConfigurationError if Spark cannot connect as the connection says.
    """
    properties = dict(catalog.properties)
    if properties.get("type") == "sql":
        # Spark makes an older layout of the catalog otherwise, in which PyIceberg warns.
        properties |= {"type": "jdbc", "jdbc.schema-version": "V1"}
        properties |= jdbc_properties(catalog.name, make_url(properties["uri"]), catalog.spark)
    if properties.get("type") == "rest":
        properties = check_spark_tls(catalog.name, properties, catalog.spark)
    # Otherwise Spark goes on with the state of a table that it has seen first.
    properties["cache-enabled"] = "false"
    prefix = f"spark.sql.catalog.{catalog.name}"
    return {
        prefix: SPARK_CATALOG,
        **{f"{prefix}.{name}": value for name, value in properties.items()},
        **{f"{prefix}.{name}": value for name, value in catalog.spark.items()},
    }


@contextmanager
def translate_errors(doing: str, table: str) -> Iterator[None]:
    """Turn what PyIceberg raises, outside of a commit, into errors that say what to do.

    They do not say whether a batch is published: cleaning up after its commit may fail by the same ones.
    """
    try:
        yield
    except BatchledgerError:
        raise
    except NoSuchTableError as error:
        raise TargetChangedError(
            f"Table {table} is gone: could not {doing}.",
            advice="Bring it back.\nOr read the source again under a new pipeline name.",
            subject=table,
        ) from error
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        raise ConfigurationError(
            f"could not {doing}: the catalog of table {table} refuses the login.",
            why=f"{_first_line(error)}.",
            advice="Correct login and password, or the token, of its connection.",
            subject=table,
        ) from error
    except RequestException as error:
        raise _unavailable(doing, table, error) from error
    except (ValidationError, ValueError, TypeError, LookupError, NotImplementedError, DataError) as error:
        raise TargetChangedError(f"Table {table}: could not {doing}.", why=_first_line(error), subject=table) from error
    except (CommitFailedException, TableAlreadyExistsError, SQLAlchemyError, RESTError, OSError) as error:
        raise _unavailable(doing, table, error) from error


def _unavailable(doing: str, table: str, error: Exception) -> ServiceUnavailableError:
    return ServiceUnavailableError(
        f"could not {doing}: the catalog or the files of table {table} do not answer.",
        why=f"{_first_line(error)}.",
        advice="Try again when they answer, or correct the catalog's connection.",
        subject=table,
    )


def _first_line(error: Exception) -> str:
    # SQLAlchemy adds text that holds the statement.
    inner = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return str(inner).strip().split("\n", 1)[0]
