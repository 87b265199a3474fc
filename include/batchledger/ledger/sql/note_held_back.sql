-- The moment is kept as long as the offset is; a partition that is not named is not held back any more.
update batchledger.position p
set held_back_at = seen.at, held_back_since = case when seen.at is not null then now() end
from batchledger.position known
left join unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[]) as seen (topic, partition, at)
    using (topic, partition)
where known.pipeline = %(pipeline)s
    and p.pipeline = known.pipeline and p.topic = known.topic and p.partition = known.partition
    and p.held_back_at is distinct from seen.at
