-- The rows whose key was first seen at other coordinates, with these.
with keyed as materialized (
    {keyed}
), first_here as (
    select distinct on (key_hash) pipeline, key_hash, _topic, _partition, _offset
    from keyed
    order by key_hash, _topic collate "C", _partition, _offset
), first as (
    select h.key_hash, coalesce(m.topic, h._topic) as topic, coalesce(m.partition, h._partition) as partition,
        coalesce(m."offset", h._offset) as "offset"
    from first_here h
    left join batchledger.message_key m
        on m.pipeline = h.pipeline and m.key_hash = h.key_hash and m.remembered_until > %(planned_at)s
)
select k._topic, k._partition, k._offset,
    f.topic as first_topic, f.partition as first_partition, f."offset" as first_offset
from keyed k
join first f using (key_hash)
where (k._topic, k._partition, k._offset) <> (f.topic, f.partition, f."offset")
