-- The states that keys were given in the ranges of the batch: the rows that are withdrawn, and the tombstones, which go
-- too, so that their keys may come back.
with deleted as (
    delete from batchledger.deleted_key d
    using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where d.pipeline = %(pipeline)s and d.topic = p.topic and d.partition = p.partition
        and d."offset" >= p.start and d."offset" < p.until
    returning d.key_hash, d.topic, d.partition, d."offset", d."timestamp"
)
insert into batchledger_withdrawn_key (key_hash, topic, partition, "offset", "timestamp")
select * from deleted
union all
select {key_hash}, _topic, _partition, _offset, _timestamp from batchledger_withdrawn
