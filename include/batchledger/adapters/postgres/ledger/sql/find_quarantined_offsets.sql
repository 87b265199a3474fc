-- How many offsets of each frame are in quarantine, and which, neighbours put together. Of more than there are columns in
-- a picture, the first of each column.
select f.topic, f.partition, n.count, lower(piece), upper(piece)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as f (topic, partition, start, until)
cross join lateral (
    select count(*) as count from batchledger.quarantine
    where pipeline = %(pipeline)s and topic = f.topic and partition = f.partition
        and "offset" >= f.start and "offset" < f.until) n
cross join lateral (
    select range_agg(int8range(first, first + 1)) as pieces
    from (
        select min("offset") as first from batchledger.quarantine
        where pipeline = %(pipeline)s and topic = f.topic and partition = f.partition
            and "offset" >= f.start and "offset" < f.until
        group by case
            when n.count <= %(columns)s then "offset"
            else div(("offset" - f.start)::numeric * %(columns)s, f.until - f.start) end) q) r
cross join lateral unnest(r.pieces) as piece
order by f.topic, f.partition, piece
