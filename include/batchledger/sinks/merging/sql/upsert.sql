-- name: find_unique_indexes
-- The key columns of each index that an "on conflict" can name; columns of INCLUDE do not count. Then the collations of
-- index and columns under which different texts may be equal.
select array(
    select a.attname::text
    from pg_attribute a
    where a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])),
    array(
        select c.collname::text
        from pg_collation c
        where not c.collisdeterministic and (c.oid = any(i.indcollation::oid[]) or c.oid in (
            select a.attcollation from pg_attribute a
            where a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])))
        order by 1)
from pg_index i
where i.indrelid = %(target)s::regclass and i.indisunique and i.indisvalid and i.indimmediate
    and i.indpred is null and i.indexprs is null

-- name: withdraw_keys
-- The states of keys that come from the ranges of the batch: the rows that are withdrawn, and the tombstones, which go,
-- too, so that their keys may come back.
with deleted as (
    delete from batchledger.deleted_key d
    using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where d.pipeline = %(pipeline)s and d.topic = p.topic and d.partition = p.partition
        and d."offset" >= p.start and d."offset" < p.until and not d.is_erased
    returning d.key_hash, d.topic, d.partition, d."offset", d."timestamp"
)
insert into batchledger_withdrawn_key (key_hash, topic, partition, "offset", "timestamp")
select * from deleted
union all
select {key_hash}, _topic, _partition, _offset, _timestamp from {withdrawn}

-- name: upsert_rows
insert into {target} as t ({columns}, _batch_id)
select {columns}, %(batch_id)s
from {last} l
where not l._is_deleted and not exists (
    select from batchledger.deleted_key d
    where d.pipeline = l._pipeline and d.key_hash = l._key_hash and {version_of_tombstone} > {version_of_last})
on conflict ({key}) do update
set {assignments}, _batch_id = excluded._batch_id
where {version_of_target} <= {version_of_excluded}

-- name: forget_deleted_keys
delete from batchledger.deleted_key d
using {last} l
where d.pipeline = l._pipeline and d.key_hash = l._key_hash and not l._is_deleted
    and {version_of_tombstone} <= {version_of_last}

-- name: delete_rows
delete from {target} t
using {last} l
where l._is_deleted and {same_key} and {version_of_target} <= {version_of_last}

-- name: remember_deleted_keys
-- After delete_rows: a row that is still there is newer than the tombstone.
insert into batchledger.deleted_key as d (pipeline, key_hash, topic, partition, "offset", "timestamp", batch_id, is_erased)
select %(pipeline)s, l._key_hash, l._topic, l._partition, l._offset, l._timestamp, %(batch_id)s, l._is_erased
from {last} l
where l._is_deleted and not exists (select from {target} t where {same_key})
on conflict (pipeline, key_hash) do update
set topic = excluded.topic, partition = excluded.partition, "offset" = excluded."offset",
    "timestamp" = excluded."timestamp", batch_id = excluded.batch_id, is_erased = excluded.is_erased
where {version_of_tombstone} <= {version_of_excluded_tombstone}

-- name: count_ignored
-- The newest records of their keys whose state the target does not show after the change: no row of that version or a
-- newer one, or a row that should be gone.
select count(*)
from {last} l
where case when l._is_deleted then exists (
        select from {target} t where {same_key} and {version_of_target} <= {version_of_last})
    else not exists (
        select from {target} t where {same_key} and {version_of_target} >= {version_of_last})
    and not exists (
        select from batchledger.deleted_key d
        where d.pipeline = l._pipeline and d.key_hash = l._key_hash and {version_of_tombstone} > {version_of_last})
    end

-- name: count_lost_keys
-- Keys whose newest known record the batch brings no more, nor a newer one.
select count(distinct d.key_hash)
from batchledger_withdrawn_key d
where not exists (
    select from {last} l where l._key_hash = d.key_hash and {version_of_last} >= {version_of_tombstone})

-- name: find_divided_keys
-- Records of the batch whose key has a record in another partition: in the batch, in the target, or as a tombstone.
select l._topic, l._partition, l._offset, o._topic, o._partition, o._offset
from {last} l
join {last} o on o._key_hash = l._key_hash
where (o._topic, o._partition) > (l._topic, l._partition)
union all
select l._topic, l._partition, l._offset, t._topic, t._partition, t._offset
from {last} l
join {target} t on {same_key}
where (t._topic, t._partition) <> (l._topic, l._partition)
union all
select l._topic, l._partition, l._offset, d.topic, d.partition, d."offset"
from {last} l
join batchledger.deleted_key d on d.pipeline = l._pipeline and d.key_hash = l._key_hash
where (d.topic, d.partition) <> (l._topic, l._partition)
order by 1, 2, 3
limit %(limit)s

-- name: collapse_updates
-- The last record of each key. By offset it is the last one of each partition, so that a key in two of them is seen.
-- For the reason of the pipeline's column see select_keyed. A record of an erased key deletes its key, and stays known.
create temporary table {last} on commit drop as
select distinct on ({apart}) {columns}, {deleted} or _task = {erased} as _is_deleted, _task = {erased} as _is_erased,
    {key_hash} as _key_hash, {pipeline}::text as _pipeline
from {rows}
where _task >= 0 or (_task = {erased} and ({key}) is not null)
order by {apart}, {newest_first}

-- name: select_unmatched
-- Records that delete a key of which nothing is known: no row, no deletion, no earlier record of the batch. The rank is
-- one pass: to look for an earlier record of each deletion would read all records of its key each time.
select s._topic, s._partition, s._offset
from (
    select *, {key_hash} as _key_hash, {pipeline}::text as _pipeline
    from (select *, rank() over (partition by {key} order by {version}) as _rank from {rows} where _task >= 0) ranked
    where _rank = 1 and _deleted and num_nulls({key}) = 0) s
where not exists (select from {target} t where {same_key_in_target})
    and not exists (
        select from batchledger.deleted_key d where d.pipeline = s._pipeline and d.key_hash = s._key_hash)
