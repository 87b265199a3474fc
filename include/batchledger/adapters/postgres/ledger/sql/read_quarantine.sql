select q.topic, q.partition, q."offset",
    coalesce(q.timestamp_ms, floor(extract(epoch from q."timestamp") * 1000)::bigint), q.key, q.value, q.headers::text,
    q.error
from batchledger.batch_range r
join batchledger.quarantine q
    on q.pipeline = r.pipeline and q.topic = r.topic and q.partition = r.partition and q."offset" >= lower(r.offsets)
    and q."offset" < upper(r.offsets)
where r.batch_id = %(batch_id)s
order by q.topic, q.partition, q."offset"
