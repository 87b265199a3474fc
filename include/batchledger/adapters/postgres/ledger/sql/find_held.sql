-- Who holds which of the ranges now: published batches, whose rows these are. "offset 0" as in find_published_since.
select h.batch_id, h.topic, h.partition, lower(piece), upper(piece)
from (
    select topic, partition, range_agg(int8range(start, until)) as offsets
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as asked (topic, partition, start, until)
    group by topic, partition) asked
cross join lateral (
    select holder.batch_id, holder.topic, holder.partition, holder.held
    from batchledger.batch_range holder
    where holder.pipeline = %(pipeline)s and holder.topic = asked.topic and holder.partition = asked.partition
        and holder.held && asked.offsets and not isempty(holder.held)
    offset 0) h
cross join lateral unnest(h.held * asked.offsets) as piece
order by h.topic, h.partition, piece
