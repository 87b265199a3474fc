-- The first offsets in quarantine of each of these frames, neighbours put together; in the order of offsets.
select f.topic, f.partition, lower(piece), upper(piece)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as f (topic, partition, start, until)
cross join lateral (
    select range_agg(int8range("offset", "offset" + 1)) as pieces
    from (
        select "offset" from batchledger.quarantine
        where pipeline = %(pipeline)s and topic = f.topic and partition = f.partition
            and "offset" >= f.start and "offset" < f.until
        order by "offset" limit %(limit)s) q) r
cross join lateral unnest(r.pieces) as piece
