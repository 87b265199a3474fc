-- What was published since then, and whoever else holds offsets of it: an accepted loss takes over from nobody. "offset 0"
-- lets the constraint's index answer for each range: PostgreSQL expects thousands of holders of one, and would rather read
-- the whole history.
with recent as materialized (
    select r.batch_id, r.topic, r.partition, r.offsets
    from batchledger.batch b
    join batchledger.batch_range r on r.batch_id = b.batch_id
    where b.pipeline = %(pipeline)s and b.state = 'published' and b.published_at >= %(since)s
)
select batch_id from recent
union
select h.batch_id
from recent
cross join lateral (
    select holder.batch_id
    from batchledger.batch_range holder
    where holder.pipeline = %(pipeline)s and holder.topic = recent.topic and holder.partition = recent.partition
        and holder.held && recent.offsets and not isempty(holder.held)
    offset 0) h
