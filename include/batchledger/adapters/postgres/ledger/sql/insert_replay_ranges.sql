-- Ranges of a replay; they need not meet the position.
insert into batchledger.batch_range (batch_id, pipeline, topic, partition, offsets, epoch)
select %(batch_id)s, p.name, planned.topic, planned.partition, int8range(planned.start, planned.until), p.epoch
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as planned (topic, partition, start, until)
join batchledger.pipeline p on p.name = %(pipeline)s
