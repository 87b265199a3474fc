-- name: list_judged_repeated
insert into batchledger_repeated
select _topic, _partition, _offset, first_topic, first_partition, first_offset, is_settled
from batchledger_judged
where is_duplicate

-- name: find_known
-- The rows whose key is remembered, each with the record that came first. "offset 0" keeps PostgreSQL from comparing the
-- pipeline with a constant (see select_keyed), at no cost: the hashes are made as the rows are joined, and not stored.
create temporary table batchledger_known on commit drop as
select k.key_hash, k._topic, k._partition, k._offset,
    m.topic as first_topic, m.partition as first_partition, m."offset" as first_offset
from ({keyed} offset 0) k
join batchledger.message_key m
    on m.pipeline = k.pipeline and m.key_hash = k.key_hash and m.remembered_until > %(planned_at)s

-- name: find_again
-- Which keys may come more than once in the batch, by a hash of 64 bits: that takes a fifth of the exact one's time,
-- which only these rows need.
create temporary table batchledger_again on commit drop as
select {short_hash} as short_hash
from {staging}
where ({key}) is not null and _task >= 0
group by 1
having count(*) > 1

-- name: list_repeated
-- The rows whose key was first seen at other coordinates, with these: by the key that is remembered, else by the first
-- of them in the batch.
insert into batchledger_repeated
with again as materialized (
    select _topic, _partition, _offset, {key_hash} as key_hash
    from {staging}
    where ({key}) is not null and _task >= 0 and {short_hash} in (select short_hash from batchledger_again)
), first_here as (
    select distinct on (key_hash) key_hash, _topic, _partition, _offset
    from again
    order by key_hash, _topic collate "C", _partition, _offset
), judged as (
    select _topic, _partition, _offset, first_topic, first_partition, first_offset
    from batchledger_known
    union all
    select a._topic, a._partition, a._offset, f._topic, f._partition, f._offset
    from again a
    join first_here f using (key_hash)
    where not exists (select from batchledger_known k where k.key_hash = a.key_hash)
)
select *, false
from judged
where (_topic, _partition, _offset) <> (first_topic, first_partition, first_offset)

-- name: find_repeated
-- Duplicates that were not listed before.
select _topic, _partition, _offset, first_topic, first_partition, first_offset
from {repeated}
where not is_settled
order by _topic, _partition, _offset
limit %(limit)s

-- name: select_judged
select s.*
from {staging} s
where not exists (
    select from batchledger_judged j
    where j.is_duplicate and j._topic = s._topic and j._partition = s._partition and j._offset = s._offset)

-- name: select_accepted
select s.*
from {staging} s
where not exists (
    select from batchledger.duplicate d
    where d.batch_id = {batch_id} and d.topic = s._topic and d.partition = s._partition and d."offset" = s._offset)

-- name: take_over_keys
-- A key belongs to the batch that writes the row of its first record; how long it is remembered does not change.
with accepted as materialized (
    select %(pipeline)s::text as pipeline, j.*
    from batchledger_judged j
    where j.is_settled and not j.is_duplicate
)
update batchledger.message_key m
set batch_id = %(batch_id)s
from accepted a
where m.pipeline = a.pipeline and m.key_hash = a.key_hash
    and m.topic = a._topic and m.partition = a._partition and m."offset" = a._offset

-- name: remember_judged
-- Only keys that were not settled before are new. A new one takes the place of a forgotten key. A key that is there
-- already is remembered for as long as before.
insert into batchledger.message_key as m
    (pipeline, key_hash, topic, partition, "offset", batch_id, remembered_until)
select distinct
    %(pipeline)s, key_hash, _topic, _partition, _offset, %(batch_id)s, %(planned_at)s::timestamptz + %(remember)s
from batchledger_judged
where not is_settled and not is_duplicate
on conflict (pipeline, key_hash) do update
set topic = excluded.topic, partition = excluded.partition, "offset" = excluded."offset", batch_id = excluded.batch_id,
    remembered_until = case
        when (m.topic, m.partition, m."offset") = (excluded.topic, excluded.partition, excluded."offset")
        then m.remembered_until else excluded.remembered_until end

-- name: list_judged
insert into batchledger.duplicate
    (batch_id, pipeline, topic, partition, "offset", first_topic, first_partition, first_offset, key_hash)
select %(batch_id)s, %(pipeline)s, _topic, _partition, _offset, first_topic, first_partition, first_offset, key_hash
from batchledger_judged
where is_duplicate

-- name: remember_keys
insert into batchledger.message_key (pipeline, key_hash, topic, partition, "offset", batch_id, remembered_until)
select distinct on (key_hash)
    %(pipeline)s, key_hash, _topic, _partition, _offset, %(batch_id)s, %(planned_at)s::timestamptz + %(remember)s
from ({keyed}) keyed
order by key_hash, _topic collate "C", _partition, _offset
on conflict (pipeline, key_hash) do nothing

-- name: list_duplicates
-- After remember_keys every key of the batch has its first record in message_key, from this batch or an earlier one.
with keyed as materialized (
    {keyed}
)
insert into batchledger.duplicate
    (batch_id, pipeline, topic, partition, "offset", first_topic, first_partition, first_offset, key_hash)
select %(batch_id)s, k.pipeline, k._topic, k._partition, k._offset, m.topic, m.partition, m."offset", k.key_hash
from keyed k
join batchledger.message_key m on m.pipeline = k.pipeline and m.key_hash = k.key_hash
where (k._topic, k._partition, k._offset) <> (m.topic, m.partition, m."offset")

-- name: select_missing
select a.*
from {accepted} a
where not exists (
    select from batchledger_held h
    where h._topic = a._topic and h._partition = a._partition and h._offset = a._offset)

-- name: recall_accepted
insert into batchledger_recalled
select distinct {key_hash}, _topic, _partition, _offset, false, _topic, _partition, _offset
from {rows}
where ({key}) is not null

-- name: recall_duplicates
insert into batchledger_recalled
select d.key_hash, d.topic, d.partition, d."offset", true, d.first_topic, d.first_partition, d.first_offset
from unnest(
    %(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as piece (batch_id, topic, partition, start, until)
join batchledger.duplicate d
    on d.batch_id = piece.batch_id and d.topic = piece.topic and d.partition = piece.partition
    and d."offset" >= piece.start and d."offset" < piece.until
where d.key_hash is not null

-- name: settle_rows
-- A decision about a record stands, as long as it has the same key.
insert into batchledger_judged
select r.*, true
from batchledger_recalled r
where exists (
    select from batchledger_keyed k
    where k.key_hash = r.key_hash and k._topic = r._topic and k._partition = r._partition and k._offset = r._offset)

-- name: unsettle_rows
-- A duplicate has to be judged anew when its first record lies in the ranges, and is not accepted there any more.
delete from batchledger_judged d
using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as p (topic, partition, start, until)
where d.is_duplicate and p.topic = d.first_topic and p.partition = d.first_partition
    and d.first_offset >= p.start and d.first_offset < p.until
    and not exists (
        select from batchledger_judged f
        where not f.is_duplicate and f.key_hash = d.key_hash and f._topic = d.first_topic
            and f._partition = d.first_partition and f._offset = d.first_offset)

-- name: judge_rows
-- Judges the rows without a decision: by the remembered key, else by the first of them in the batch.
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

-- name: find_gone
-- First records that were accepted before and are not read any more, or with another key.
insert into batchledger_gone
select %(pipeline)s, r.key_hash, r._topic, r._partition, r._offset
from batchledger_recalled r
where not r.is_duplicate and not exists (
    select from batchledger_judged j
    where j.key_hash = r.key_hash and j._topic = r._topic and j._partition = r._partition and j._offset = r._offset)

-- name: forget_keys
delete from batchledger.message_key m
using batchledger_gone g
where m.pipeline = g.pipeline and m.key_hash = g.key_hash
    and m.topic = g._topic and m.partition = g._partition and m."offset" = g._offset

-- name: unlist_duplicates
-- A record that was listed as a duplicate of one that is gone is judged anew when its own range is published again.
update batchledger.duplicate d
set key_hash = null
from batchledger_gone g
where d.pipeline = g.pipeline and d.key_hash = g.key_hash
    and d.first_topic = g._topic and d.first_partition = g._partition and d.first_offset = g._offset

-- name: find_held_rows
-- Before remember_keys: an earlier attempt has committed the keys that are remembered of this batch, with its rows.
create temporary table batchledger_held on commit drop as
with keyed as materialized (
    {keyed}
)
select k._topic, k._partition, k._offset
from keyed k
join batchledger.message_key m on m.pipeline = k.pipeline and m.key_hash = k.key_hash
where m.batch_id = {batch_id} and (m.topic, m.partition, m."offset") = (k._topic, k._partition, k._offset)

-- name: select_keyed
-- The pipeline is a column, for joins. Compared with a constant it makes PostgreSQL expect one key of a pipeline that is
-- newer than its statistics, and read the batch once for each of them. A row of an erased key (tables.ERASED) is neither
-- a first record nor a duplicate.
select {pipeline}::text as pipeline, _topic, _partition, _offset, {key_hash} as key_hash
from {staging}
where ({key}) is not null and _task >= 0

-- name: select_unrepeated
select s.*
from {staging} s
where not exists (
    select from {repeated} r
    where r._topic = s._topic and r._partition = s._partition and r._offset = s._offset)
