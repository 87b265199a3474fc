-- Rows by what would become of them, then the first of those that would change. "before" are the rows of the target that
-- are concerned, "after" those that would stand in their place, in the types of the target.
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
