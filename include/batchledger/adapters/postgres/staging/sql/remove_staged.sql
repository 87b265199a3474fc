-- Offset by offset: compared with ranges, every row of a partition would meet every one of them.
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
