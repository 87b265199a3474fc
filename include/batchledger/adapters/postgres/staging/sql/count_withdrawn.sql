-- One number for each piece that is replaced, in their order: how many different offsets of it had a row.
select count(distinct w._offset)
from unnest(
    %(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    with ordinality as piece (batch_id, topic, partition, start, until, ordinality)
left join batchledger_withdrawn w
    on w._batch_id = piece.batch_id and w._topic = piece.topic and w._partition = piece.partition
    and w._offset >= piece.start and w._offset < piece.until
group by piece.ordinality
order by piece.ordinality
