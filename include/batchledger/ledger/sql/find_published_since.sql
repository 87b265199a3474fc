-- What was published since then, and whoever else holds offsets of it: an accepted loss takes over from nobody.
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
join batchledger.batch_range h
    on h.pipeline = %(pipeline)s and h.topic = recent.topic and h.partition = recent.partition
    and h.held && recent.offsets and not isempty(h.held)
