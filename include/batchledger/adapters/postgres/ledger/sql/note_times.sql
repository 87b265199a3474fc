-- What a search has found out about ranges that were published before their times were noted.
update batchledger.batch_range r
set timestamps = case when b.first_ms is null then 'empty' else int8range(b.first_ms, b.last_ms, '[]') end,
    untimed = b.untimed
from unnest(
    %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[],
    %(first_ms)s::bigint[], %(last_ms)s::bigint[], %(untimed)s::bigint[]
) as b (topic, partition, start, until, first_ms, last_ms, untimed)
where r.pipeline = %(pipeline)s and r.topic = b.topic and r.partition = b.partition
    and r.offsets = int8range(b.start, b.until) and not isempty(r.held) and r.timestamps is null
