-- name: read_key_types
-- Without modifiers: with them, a cast would cut a text off or round a number, and name rows of another key.
select a.attname::text, format_type(a.atttypid, -1)
from pg_attribute a
where a.attrelid = {target}::regclass and a.attname = any(%(columns)s::text[]) and a.attnum > 0 and not a.attisdropped

-- name: find_salt
select salt from batchledger.erased_key where pipeline = %(pipeline)s limit 1

-- name: create_erased
-- What is erased in this transaction: the place of each row, and the hashes by which its key is known.
create temporary table batchledger_erased (
    batch_id bigint, topic text, partition int, "offset" bigint, "timestamp" timestamptz, erased_hash bytea,
    message_hash bytea, deleted_hash bytea, leaves_version boolean
) on commit drop

-- name: note_given
-- The key as a person has written it; it has no place. The condition always holds: it fails if a type knows no "=".
insert into batchledger_erased (erased_hash, message_hash, deleted_hash)
select {erased_hash}, {message_hash}, {deleted_hash}
where {is_comparable}

-- name: erase_rows
with removed as (
    delete from {target} t
    where {is_key}
    returning t._batch_id, t._topic, t._partition, t._offset, t._timestamp, {erased_hash} as erased_hash,
        {message_hash} as message_hash, {deleted_hash} as deleted_hash
)
insert into batchledger_erased
select * from removed

-- name: count_kept
select count(*) from {target} t where {is_key}

-- name: remember_erased
-- Each way in which a row has written the key. A rewind takes the position back, and batches have read further before.
insert into batchledger.erased_key as k (pipeline, columns, types, salt, key_hash, topic, partition, until, form)
select distinct %(pipeline)s::text, %(columns)s::text[], %(types)s::text[], %(salt)s::bytea, e.erased_hash, p.topic,
    p.partition, p.until, %(form)s::text
from batchledger_erased e
cross join (
    select topic, partition, max(upper(offsets)) as until
    from batchledger.batch_range
    where pipeline = %(pipeline)s
    group by topic, partition) p
on conflict (pipeline, columns, key_hash, topic, partition) do update
set until = greatest(k.until, excluded.until), types = excluded.types
where k.until < excluded.until or k.types is distinct from excluded.types

-- name: find_erasures
-- Which keys were erased whose records may be among the batch's. Only replays and rewound batches read below "until".
select distinct e.columns, e.types, e.salt
from batchledger.erased_key e
join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as mine (topic, partition, start, until)
    on mine.topic = e.topic and mine.partition = e.partition and mine.start < e.until
where e.pipeline = %(pipeline)s

-- name: gather_erasures
-- Apart from the ledger's table: a policy holds some roles to its rows, and while hidden rows of the target are an error,
-- its policy would be one, too.
create temporary table batchledger_erasing on commit drop as
select e.columns, e.types, e.key_hash, e.topic, e.partition, e.until
from batchledger.erased_key e
where e.pipeline = %(pipeline)s

-- name: is_unmarked
-- An older version has staged the attempt: it kept no rules, and marked no rows.
select exists (select from batchledger.attempt where batch_id = %s and number = %s and row_rules is null)

-- name: uncount_erased
-- An earlier attempt of the batch has counted its own rows (at_least_once).
update batchledger.batch_range set rows_erased = 0 where batch_id = %(batch_id)s and rows_erased > 0

-- name: erase_late
with removed as (
    delete from {target} t
    using batchledger_erasing e, unnest(
        %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as mine (topic, partition, start, until)
    where t._topic = mine.topic and t._partition = mine.partition
        and t._offset >= mine.start and t._offset < mine.until
        and e.columns = %(columns)s::text[] and e.types is not distinct from %(types)s::text[]
        and e.topic = t._topic and e.partition = t._partition and t._offset < e.until and e.key_hash = {erased_hash}
    returning t._batch_id, t._topic, t._partition, t._offset, t._timestamp, {erased_hash} as erased_hash,
        {message_hash} as message_hash, {deleted_hash} as deleted_hash
)
insert into batchledger_erased
select * from removed

-- name: count_erased
-- Offsets, as "replacement" counts them. Rows that no batch of the pipeline has written are nowhere counted.
update batchledger.batch_range r
set rows_erased = r.rows_erased + of_range.rows
from (
    select h.batch_id, h.topic, h.partition, h.offsets, count(distinct e."offset") as rows
    from batchledger_erased e
    join batchledger.batch_range h
        on h.batch_id = {holder} and h.topic = e.topic and h.partition = e.partition and h.offsets @> e."offset"
    where h.pipeline = %(pipeline)s
    group by h.batch_id, h.topic, h.partition, h.offsets) of_range
where r.batch_id = of_range.batch_id and r.topic = of_range.topic and r.partition = of_range.partition
    and r.offsets = of_range.offsets

-- name: forget_erased_messages
delete from batchledger.message_key m
using batchledger_erased e
where m.pipeline = %(pipeline)s and m.key_hash = e.message_hash

-- name: forget_erased_deletions
delete from batchledger.deleted_key d
using batchledger_erased e
where d.pipeline = %(pipeline)s and d.key_hash = e.deleted_hash

-- name: unlist_erased
-- The list of duplicates keeps their places, which the balance counts, without the key.
update batchledger.duplicate d
set key_hash = null
from batchledger_erased e
where d.pipeline = %(pipeline)s and d.key_hash = e.message_hash

-- name: remember_offsets
-- The erased rows. A duplicate of one is erased with it; it never was the state of a key. A row that no batch of the
-- pipeline has written, such as a copy, may name the place of a record that is not read yet.
insert into batchledger.erased_offset (pipeline, topic, partition, "offset", leaves_version)
select %(pipeline)s, topic, partition, "offset", bool_or(leaves_version)
from (
    select e.topic, e.partition, e."offset", coalesce(e.leaves_version, %(leaves_version)s) as leaves_version
    from batchledger_erased e
    join batchledger.batch_range h
        on h.batch_id = {holder} and h.topic = e.topic and h.partition = e.partition and h.offsets @> e."offset"
    where h.pipeline = %(pipeline)s
    union all
    select d.topic, d.partition, d."offset", false
    from batchledger.duplicate d
    join batchledger_erased e on d.key_hash = e.message_hash
    where d.pipeline = %(pipeline)s) found
group by topic, partition, "offset"
on conflict do nothing

-- name: remember_versions
-- For the reason of the join see remember_offsets.
insert into batchledger.deleted_key (pipeline, key_hash, topic, partition, "offset", "timestamp", batch_id, is_erased)
select distinct on (e.deleted_hash)
    %(pipeline)s, e.deleted_hash, e.topic, e.partition, e."offset", e."timestamp", h.batch_id, true
from batchledger_erased e
join batchledger.batch_range h
    on h.batch_id = {holder} and h.topic = e.topic and h.partition = e.partition and h.offsets @> e."offset"
where h.pipeline = %(pipeline)s and e.deleted_hash is not null
order by e.deleted_hash, e."timestamp" desc nulls last, e.topic collate "C" desc, e.partition desc, e."offset" desc
on conflict (pipeline, key_hash) do update
set topic = excluded.topic, partition = excluded.partition, "offset" = excluded."offset",
    "timestamp" = excluded."timestamp", batch_id = excluded.batch_id, is_erased = true

-- name: may_have_erased
-- Only replays and rewound batches read what was erased.
select exists (
    select from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as mine (topic, partition, start, until)
    where exists (
            select from batchledger.erased_key e
            where e.pipeline = %(pipeline)s and e.topic = mine.topic and e.partition = mine.partition
                and e.until > mine.start)
        or exists (
            select from batchledger.erased_offset e
            where e.pipeline = %(pipeline)s and e.topic = mine.topic and e.partition = mine.partition
                and e."offset" >= mine.start and e."offset" < mine.until))

-- name: mark_keys
update {staging} t
set _task = %(mark)s
from batchledger_erasing e
where e.columns = %(columns)s::text[] and e.types is not distinct from %(types)s::text[] and e.topic = t._topic
    and e.partition = t._partition and t._offset < e.until and t._task >= 0 and e.key_hash = {erased_hash}

-- name: mark_offsets
update {staging} t
set _task = case when e.leaves_version then %(erased)s else %(without_version)s end
from batchledger.erased_offset e
join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as mine (topic, partition, start, until)
    on mine.topic = e.topic and mine.partition = e.partition and e."offset" >= mine.start and e."offset" < mine.until
where e.pipeline = %(pipeline)s and e.topic = t._topic and e.partition = t._partition and e."offset" = t._offset

-- name: note_marked
-- The staged rows that were erased. Their keys are not remembered.
insert into batchledger_erased (batch_id, topic, partition, "offset", leaves_version)
select %(batch_id)s, _topic, _partition, _offset, _task = %(erased)s
from {rows}
where _task < 0
