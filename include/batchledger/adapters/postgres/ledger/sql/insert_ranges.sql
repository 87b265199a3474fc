-- A range is stored only if it starts at the stored position; the caller compares the number of rows. The epoch is looked
-- up once, not once a range.
insert into batchledger.batch_range (batch_id, pipeline, topic, partition, offsets, epoch)
select %(batch_id)s, p.pipeline, p.topic, p.partition, int8range(planned.start, planned.until),
    (select epoch from batchledger.pipeline where name = %(pipeline)s)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as planned (topic, partition, start, until)
join batchledger.position p
    on p.pipeline = %(pipeline)s and p.topic = planned.topic and p.partition = planned.partition
    and p.next_offset = planned.start
