-- Judges the rows that nothing was decided about: by the key that is remembered, else by the first of them in the batch.
insert into batchledger_judged
with planned as (
    select *
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
), open as materialized (
    select k.*
    from batchledger_keyed k
    where not exists (
        select from batchledger_judged j
        where j.key_hash = k.key_hash and j._topic = k._topic and j._partition = k._partition and j._offset = k._offset)
), remembered as (
    -- A first record in the ranges that is not read any more, or with another key, is about to be forgotten.
    select distinct m.key_hash, m.topic, m.partition, m."offset"
    from batchledger.message_key m
    join (select distinct pipeline, key_hash from open) o on o.pipeline = m.pipeline and o.key_hash = m.key_hash
    left join batchledger_keyed k
        on k.key_hash = m.key_hash and k._topic = m.topic and k._partition = m.partition and k._offset = m."offset"
    where m.remembered_until > %(planned_at)s and (k.key_hash is not null or not exists (
        select from planned p
        where p.topic = m.topic and p.partition = m.partition and m."offset" >= p.start and m."offset" < p.until))
), first_here as (
    select distinct on (key_hash) key_hash, _topic, _partition, _offset
    from (
        select key_hash, _topic, _partition, _offset, false as is_open
        from batchledger_judged
        where not is_duplicate and key_hash in (select key_hash from open)
        union all
        select key_hash, _topic, _partition, _offset, true from open) known
    order by key_hash, is_open, _topic collate "C", _partition, _offset
), first as (
    select h.key_hash, coalesce(m.topic, h._topic) as topic, coalesce(m.partition, h._partition) as partition,
        coalesce(m."offset", h._offset) as "offset"
    from first_here h
    left join remembered m using (key_hash)
)
select o.key_hash, o._topic, o._partition, o._offset,
    (o._topic, o._partition, o._offset) <> (f.topic, f.partition, f."offset"), f.topic, f.partition, f."offset", false
from open o
join first f using (key_hash)
