"""Names of datasets, from the connections that lead to them."""

from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from batchledger.model.datasets import Dataset, name_table


def name_database_table(dsn: str, table: tuple[str, str]) -> Dataset:
    """Return the names of a table, by its schema and name, in the database that a connection string leads to.

    What the string leaves out is as libpq would have it: from its environment variables, else its defaults.
    """
    found = {each.keyword.decode(): each.val.decode() for each in pq.Conninfo.get_defaults() if each.val}
    found |= {key: str(value) for key, value in conninfo_to_dict(dsn).items() if value is not None}
    database = found.get("dbname") or found.get("user", "")
    return name_table(found.get("host", ""), found.get("port", ""), database, table)
