select count(*) filter (where is_held), count(*) filter (where not is_held)
from (
    select exists (
        select from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
            as p (topic, partition, start, until)
        where p.topic = r._topic and p.partition = r._partition and r._offset >= p.start and r._offset < p.until
    ) as is_held
    from {rows} r
) judged
