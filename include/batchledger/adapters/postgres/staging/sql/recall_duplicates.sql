insert into batchledger_recalled
select d.key_hash, d.topic, d.partition, d."offset", true, d.first_topic, d.first_partition, d.first_offset
from unnest(
    %(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as piece (batch_id, topic, partition, start, until)
join batchledger.duplicate d
    on d.batch_id = piece.batch_id and d.topic = piece.topic and d.partition = piece.partition
    and d."offset" >= piece.start and d."offset" < piece.until
where d.key_hash is not null
