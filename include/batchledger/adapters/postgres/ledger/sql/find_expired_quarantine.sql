-- What an open quarantine replay has read stays until that is over.
select q.topic, q.partition, q."offset", q."offset" + 1
from batchledger.quarantine q
where q.pipeline = %(pipeline)s and q.quarantined_at < %(before)s
    and not exists (
        select from batchledger.batch b
        join batchledger.batch_range r on r.batch_id = b.batch_id
        where b.pipeline = q.pipeline and b.lane = 'replay' and b.state not in ('published', 'discarded')
            and b.origin = 'quarantine'
            and r.topic = q.topic and r.partition = q.partition and r.offsets @> q."offset")
order by q.quarantined_at
limit %(limit)s
