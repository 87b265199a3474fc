-- What another batch takes over is not held any more.
update batchledger.batch_range h
set held = h.held - given.offsets
from (
    select batch_id, topic, partition, range_agg(int8range(start, until)) as offsets
    from unnest(%(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as piece (batch_id, topic, partition, start, until)
    group by batch_id, topic, partition) given
where h.batch_id = given.batch_id and h.topic = given.topic and h.partition = given.partition
    and h.held && given.offsets
