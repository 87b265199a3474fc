-- Named partitions go back; the others stay where they are, and the epoch starts there.
update batchledger.position p
set next_offset = coalesce(back.at, p.next_offset),
    rewound_to = coalesce(back.at, p.next_offset),
    origin_offset = least(p.origin_offset, coalesce(back.at, p.origin_offset)),
    updated_at = now()
from batchledger.position known
left join unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[]) as back (topic, partition, at)
    using (topic, partition)
where known.pipeline = %(pipeline)s
    and p.pipeline = known.pipeline and p.topic = known.topic and p.partition = known.partition
