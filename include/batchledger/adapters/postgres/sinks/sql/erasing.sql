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
    batch_id bigint, topic text, partition int, "offset" bigint, erased_hash bytea, message_hash bytea, deleted_hash bytea
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
    returning t._batch_id, t._topic, t._partition, t._offset, {erased_hash} as erased_hash,
        {message_hash} as message_hash, {deleted_hash} as deleted_hash
)
insert into batchledger_erased
select * from removed

-- name: count_kept
select count(*) from {target} t where {is_key}

-- name: remember_erased
-- Each way in which a row has written the key. A rewind takes the position back, and batches have read further before.
insert into batchledger.erased_key as k (pipeline, columns, salt, key_hash, topic, partition, until, form)
select distinct %(pipeline)s::text, %(columns)s::text[], %(salt)s::bytea, e.erased_hash, p.topic, p.partition, p.until,
    %(form)s::text
from batchledger_erased e
cross join (
    select topic, partition, max(upper(offsets)) as until
    from batchledger.batch_range
    where pipeline = %(pipeline)s
    group by topic, partition) p
on conflict (pipeline, columns, key_hash, topic, partition) do update
set until = excluded.until
where k.until < excluded.until

-- name: find_erasures
-- Which keys were erased whose records may be among the batch's. Only replays and rewound batches read below "until".
select distinct e.columns, e.salt
from batchledger.erased_key e
join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as mine (topic, partition, start, until)
    on mine.topic = e.topic and mine.partition = e.partition and mine.start < e.until
where e.pipeline = %(pipeline)s

-- name: gather_erasures
-- Apart from the ledger's table: a policy holds some roles to its rows, and while hidden rows of the target are an error,
-- its policy would be one, too.
create temporary table batchledger_erasing on commit drop as
select e.columns, e.key_hash, e.topic, e.partition, e.until
from batchledger.erased_key e
where e.pipeline = %(pipeline)s

-- name: uncount_erased
-- An earlier attempt of the batch has counted its own rows (at_least_once).
update batchledger.batch_range set rows_erased = 0 where batch_id = %(batch_id)s and rows_erased > 0

-- name: erase_again
with removed as (
    delete from {target} t
    using batchledger_erasing e, unnest(
        %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as mine (topic, partition, start, until)
    where t._topic = mine.topic and t._partition = mine.partition
        and t._offset >= mine.start and t._offset < mine.until
        and e.columns = %(columns)s::text[] and e.topic = t._topic and e.partition = t._partition
        and t._offset < e.until and e.key_hash = {erased_hash}
    returning t._batch_id, t._topic, t._partition, t._offset, {erased_hash} as erased_hash,
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
        on h.batch_id = e.batch_id and h.topic = e.topic and h.partition = e.partition and h.offsets @> e."offset"
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
