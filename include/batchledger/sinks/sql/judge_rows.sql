-- One line for each row with a key, with its first record: itself, unless it is a duplicate.
insert into batchledger_judged
with planned as (
    select *
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
), keyed as materialized (
    {keyed}
), recalled as materialized (
    select r.*
    from batchledger_recalled r
    where exists (
        select from keyed k
        where k.key_hash = r.key_hash and k._topic = r._topic and k._partition = r._partition and k._offset = r._offset)
), settled as materialized (
    -- What was decided before stands, if the first record is still there: out of the ranges, or accepted once more.
    select r.*
    from recalled r
    left join recalled f
        on f.key_hash = r.key_hash and f._topic = r.first_topic and f._partition = r.first_partition
        and f._offset = r.first_offset and not f.is_duplicate
    where f.key_hash is not null or not exists (
        select from planned p
        where p.topic = r.first_topic and p.partition = r.first_partition
            and r.first_offset >= p.start and r.first_offset < p.until)
), open as materialized (
    select k.*
    from keyed k
    left join settled s
        on s.key_hash = k.key_hash and s._topic = k._topic and s._partition = k._partition and s._offset = k._offset
    where s.key_hash is null
), remembered as (
    -- A first record in the ranges that is not read any more, or with another key, is about to be forgotten.
    select distinct m.key_hash, m.topic, m.partition, m."offset"
    from batchledger.message_key m
    join (select distinct key_hash from open) o on o.key_hash = m.key_hash
    left join keyed k
        on k.key_hash = m.key_hash and k._topic = m.topic and k._partition = m.partition and k._offset = m."offset"
    where m.pipeline = %(pipeline)s and m.remembered_until > %(planned_at)s and (k.key_hash is not null or not exists (
        select from planned p
        where p.topic = m.topic and p.partition = m.partition and m."offset" >= p.start and m."offset" < p.until))
), first_here as (
    select distinct on (key_hash) key_hash, _topic, _partition, _offset
    from (
        select key_hash, _topic, _partition, _offset, false as is_open from settled where not is_duplicate
        union all
        select key_hash, _topic, _partition, _offset, true from open) known
    order by key_hash, is_open, _topic collate "C", _partition, _offset
), first as (
    select h.key_hash, coalesce(m.topic, h._topic) as topic, coalesce(m.partition, h._partition) as partition,
        coalesce(m."offset", h._offset) as "offset"
    from first_here h
    left join remembered m using (key_hash)
)
select key_hash, _topic, _partition, _offset, is_duplicate, first_topic, first_partition, first_offset, true
from settled
union all
select o.key_hash, o._topic, o._partition, o._offset,
    (o._topic, o._partition, o._offset) <> (f.topic, f.partition, f."offset"), f.topic, f.partition, f."offset", false
from open o
join first f using (key_hash)
