select s._topic, s._partition, s._offset
from {staging} s
where not exists (
    select from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where p.topic = s._topic and p.partition = s._partition and s._offset >= p.start and s._offset < p.until)
order by s._topic, s._partition, s._offset
limit %(limit)s
