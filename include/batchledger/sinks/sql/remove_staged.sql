with removed as (
    delete from {staging} s
    using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where p.topic = s._topic and p.partition = s._partition and s._offset >= p.start and s._offset < p.until
    returning s.*
)
insert into {aside} select * from removed
