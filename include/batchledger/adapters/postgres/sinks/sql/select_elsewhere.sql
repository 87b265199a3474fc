(select t.*
 from {target} t
 where not exists (
    select from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where p.topic = t._topic and p.partition = t._partition and t._offset >= p.start and t._offset < p.until))
