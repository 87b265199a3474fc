-- The records of the ranges that are in quarantine, with their bytes. "distinct on" names once what several ranges name.
select distinct on (q.topic, q.partition, q."offset")
    q.topic, q.partition, q."offset",
    coalesce(to_json(q."timestamp") #>> '{}', nullif(q.timestamp_ms, -1) || ' ms'), q.key, q.value, q.headers, q.error
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as asked (topic, partition, start, until)
join batchledger.quarantine q
    on q.pipeline = %(pipeline)s and q.topic = asked.topic and q.partition = asked.partition
    and q."offset" >= asked.start and q."offset" < asked.until
order by q.topic, q.partition, q."offset"
limit %(limit)s
