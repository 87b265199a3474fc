-- Overlapping evidence of repeated task attempts counts once: range_agg is a union.
select coalesce(sum(upper(seen) - lower(seen)), 0)::bigint
from (
    select unnest(range_agg(offsets)) as seen
    from {visible}
    where reader is null
    group by topic, partition) as s
