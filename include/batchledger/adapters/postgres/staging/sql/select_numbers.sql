-- Every row with its number, and how often the numbering of its key has begun anew in the batch before it.
select *, {run} as run
from (
    select {aliased}, {number}::bigint as number, _topic, _partition, _offset, is_kept
    from {rows}
    where {is_numbered}) numbered
