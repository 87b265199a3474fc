-- The moment is kept as long as the offset is; a partition that is not named is not held back any more. A position that
-- is being moved is left to the next plan: a publication may hold it for minutes.
with changed as (
    select p.topic, p.partition, seen.at
    from batchledger.position p
    left join unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[]) as seen (topic, partition, at)
        using (topic, partition)
    where p.pipeline = %(pipeline)s and p.held_back_at is distinct from seen.at
    for no key update of p skip locked
)
update batchledger.position p
set held_back_at = changed.at, held_back_since = case when changed.at is not null then now() end
from changed
where p.pipeline = %(pipeline)s and p.topic = changed.topic and p.partition = changed.partition
