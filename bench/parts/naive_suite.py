"""The questions of the integrity suite, asked of Great Expectations without gathering facts first."""

from collections.abc import Sequence

import great_expectations as gx
import psycopg
from great_expectations import expectations as gxe
from great_expectations.data_context.types.base import ProgressBarsConfig
from psycopg.conninfo import conninfo_to_dict

from batchledger.model.offsets import OffsetRange, count_offsets

GAPS = """
select _topic, _partition, _offset
from (select *, lead(_offset) over (partition by _topic, _partition order by _offset) as next from {batch}) ordered
where next > _offset + 1
"""


def run_naive_suite(dsn: str, table: str, ranges: Sequence[OffsetRange]) -> bool:
    """Check doublets, gaps, the number of rows and the bounds of offsets; return whether all passed."""
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source = context.data_sources.add_postgres("target", connection_string=_address(dsn))
    batch = source.add_table_asset("rows", table_name=table).add_batch_definition_whole_table("all").get_batch()
    first, last = min(each.start for each in ranges), max(each.until for each in ranges) - 1
    rows = count_offsets(ranges)
    suite = gx.ExpectationSuite(
        name="naive",
        expectations=[
            gxe.ExpectCompoundColumnsToBeUnique(column_list=["_topic", "_partition", "_offset"]),
            gxe.UnexpectedRowsExpectation(unexpected_rows_query=GAPS),
            gxe.ExpectTableRowCountToEqual(value=rows),
            gxe.ExpectColumnValuesToBeBetween(column="_offset", min_value=first, max_value=last),
        ],
    )
    return bool(batch.validate(suite).success)


def _address(dsn: str) -> str:
    """Return the address in SQLAlchemy's form."""
    given = conninfo_to_dict(dsn)
    with psycopg.connect(dsn) as connection:
        password = connection.info.password
    return f"postgresql+psycopg://{given['user']}:{password}@{given['host']}:{given['port']}/{given['dbname']}"
