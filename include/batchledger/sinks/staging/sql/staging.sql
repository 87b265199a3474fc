-- name: find_duplicates
select _topic, _partition, _offset
from {staging}
group by _topic, _partition, _offset
having count(*) > 1
order by _topic, _partition, _offset
limit %(limit)s

-- name: find_outside
select s._topic, s._partition, s._offset
from {staging} s
where not exists (
    select from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where p.topic = s._topic and p.partition = s._partition and s._offset >= p.start and s._offset < p.until)
order by s._topic, s._partition, s._offset
limit %(limit)s

-- name: remove_staged
-- Offset by offset: in a comparison with ranges, every row of a partition would meet every range.
with doomed as (
    select topic, partition, generate_series(start, until - 1) as "offset"
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
), removed as (
    delete from {staging} s
    using doomed d
    where d.topic = s._topic and d.partition = s._partition and d."offset" = s._offset
    returning s.*
)
insert into {aside} select * from removed
