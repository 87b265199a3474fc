delete from batchledger.deleted_key d
using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as p (topic, partition, start, until)
where d.pipeline = %(pipeline)s and d.batch_id <> %(batch_id)s and d.topic = p.topic and d.partition = p.partition
    and d."offset" >= p.start and d."offset" < p.until
