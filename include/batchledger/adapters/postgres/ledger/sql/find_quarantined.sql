-- What is in quarantine of the ranges, or all of it. "union" names once what several ranges name.
select q.topic, q.partition, q."offset", coalesce(length(q.key), 0) + coalesce(length(q.value), 0)
from batchledger.quarantine q
where q.pipeline = %(pipeline)s and %(topics)s::text[] is null
union
select q.topic, q.partition, q."offset", coalesce(length(q.key), 0) + coalesce(length(q.value), 0)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as asked (topic, partition, start, until)
join batchledger.quarantine q
    on q.pipeline = %(pipeline)s and q.topic = asked.topic and q.partition = asked.partition
    and q."offset" >= asked.start and q."offset" < asked.until
order by 1, 2, 3
