-- name: compare_rows
-- Rows by what would become of them, then the first rows that would change. "before" are the target's rows in question,
-- "after" the rows that would stand in their place, in the types of the target.
with planned as (
    select *
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
), before as (
    {before}
), after as (
    {after}
), met as materialized (
    select a._topic, a._partition, a._offset,
        case
            when b.is_there is null then 'added'
            when a.is_there is null then 'removed'
            else 'kept'
        end as outcome,
        array_remove(array[{differing}]::text[], null) as columns
    from before b
    full join after a on {same_row}
), judged as (
    select *, case
            when outcome <> 'kept' then outcome
            when cardinality(columns) > 0 then 'changed'
            else 'unchanged'
        end as becomes
    from met
)
(select becomes, count(*), null::text, null::int, null::bigint, null::text[] from judged group by becomes)
union all
(select null, null, _topic, _partition, _offset, columns
 from judged
 where becomes = 'changed'
 order by _topic, _partition, _offset
 limit %(limit)s)

-- name: select_appended_before
-- If a row is there more than once, it meets one new row.
select {columns}, true as is_there,
    row_number() over (partition by t._topic, t._partition, t._offset order by t.ctid) as copy
from {target} t
join planned p
    on p.topic = t._topic and p.partition = t._partition and t._offset >= p.start and t._offset < p.until

-- name: select_elsewhere
(select t.*
 from {target} t
 where not exists (
    select from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where p.topic = t._topic and p.partition = t._partition and t._offset >= p.start and t._offset < p.until))

-- name: select_keyed_before
-- Rows that the ranges give up, and rows elsewhere that are older than the newest record of their key.
select {columns}, true as is_there
from {target} t
join planned p
    on p.topic = t._topic and p.partition = t._partition and t._offset >= p.start and t._offset < p.until
union all
select {columns}, true
from {elsewhere} t
join {last} l on {same_key}
where {version_of_target} <= {version_of_last}

-- name: select_keyed_after
-- The newest record of each key, unless a row or a tombstone outside of the ranges is newer.
select {columns}, true as is_there
from {last} l
where not l._is_deleted
    and not exists (select from {elsewhere} t where {same_key} and {version_of_target} > {version_of_last})
    and not exists (
        select from batchledger.deleted_key d
        where d.pipeline = l._pipeline and d.key_hash = l._key_hash and {version_of_tombstone} > {version_of_last}
            and (d.is_erased or not exists (
                select from planned p
                where p.topic = d.topic and p.partition = d.partition and d."offset" >= p.start
                    and d."offset" < p.until)))
