-- Who holds which of the ranges now: published batches, whose rows these are.
select h.batch_id, h.topic, h.partition, lower(piece), upper(piece)
from (
    select topic, partition, range_agg(int8range(start, until)) as offsets
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as asked (topic, partition, start, until)
    group by topic, partition) asked
join batchledger.batch_range h
    on h.pipeline = %(pipeline)s and h.topic = asked.topic and h.partition = asked.partition
    and h.held && asked.offsets and not isempty(h.held)
cross join lateral unnest(h.held * asked.offsets) as piece
order by h.topic, h.partition, piece
