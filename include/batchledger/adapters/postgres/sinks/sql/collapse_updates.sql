-- The last record of each key. By offset it is the last one of each partition, so that a key in two of them is seen.
-- For the reason of the pipeline's column see select_keyed.sql.
create temporary table batchledger_last on commit drop as
select distinct on ({apart}) {columns}, {deleted} as _is_deleted, {key_hash} as _key_hash,
    {pipeline}::text as _pipeline
from {rows}
order by {apart}, {newest_first}
