-- What withdraw_rows would remove.
select t.*
from {target} t
join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as p (topic, partition, start, until)
    on t._topic = p.topic and t._partition = p.partition and t._offset >= p.start and t._offset < p.until
