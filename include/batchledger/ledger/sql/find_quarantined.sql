select q.topic, q.partition, q."offset", coalesce(length(q.key), 0) + coalesce(length(q.value), 0)
from batchledger.quarantine q
where q.pipeline = %(pipeline)s and (
    %(topics)s::text[] is null
    or exists (
        select from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
            as asked (topic, partition, start, until)
        where asked.topic = q.topic and asked.partition = q.partition and q."offset" >= asked.start
            and q."offset" < asked.until))
order by q.topic, q.partition, q."offset"
