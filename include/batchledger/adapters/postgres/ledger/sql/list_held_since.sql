-- What batches hold that were published since a moment, put together. "offset 0" as in find_published_since.
select topic, partition, lower(part), upper(part)
from (
    select h.topic, h.partition, range_agg(piece) as held
    from batchledger.batch b
    cross join lateral (
        select topic, partition, held from batchledger.batch_range where batch_id = b.batch_id offset 0) h
    cross join lateral unnest(h.held) as piece
    where b.pipeline = %(pipeline)s and b.state = 'published' and b.published_at >= %(since)s
    group by h.topic, h.partition) h
cross join lateral unnest(h.held) as part
