-- One number per range, in the batch's order: rows whose key was first seen at other coordinates.
with planned as (
    select ordinality, topic, partition, start, until
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        with ordinality as p (topic, partition, start, until, ordinality)
), keyed as materialized (
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
), duplicate as (
    select k._topic, k._partition, k._offset
    from keyed k
    join first f using (key_hash)
    where (k._topic, k._partition, k._offset) <> (f.topic, f.partition, f."offset")
)
select count(d._offset)
from planned p
left join duplicate d
    on d._topic = p.topic and d._partition = p.partition and d._offset >= p.start and d._offset < p.until
group by p.ordinality
order by p.ordinality
