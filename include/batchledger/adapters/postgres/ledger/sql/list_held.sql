-- What published batches hold, put together.
select topic, partition, lower(part), upper(part)
from (
    select r.topic, r.partition, range_agg(piece) as held
    from batchledger.batch_range r
    cross join lateral unnest(r.held) as piece
    where r.pipeline = %(pipeline)s and not isempty(r.held)
    group by r.topic, r.partition) h
cross join lateral unnest(h.held) as part
