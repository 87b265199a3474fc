-- One number for each piece, in their order: how many rows of that batch are there.
select count(t._offset)
from unnest(
    %(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    with ordinality as piece (batch_id, topic, partition, start, until, ordinality)
left join {target} t
    on t._batch_id = piece.batch_id and t._topic = piece.topic and t._partition = piece.partition
    and t._offset >= piece.start and t._offset < piece.until
group by piece.ordinality
order by piece.ordinality
