-- The newest live batch that somebody executed: an accepted loss is none.
select b.batch_id, b.published_at, exists (
    select from batchledger.decision d
    where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = b.attempt)
from batchledger.batch b
where b.pipeline = %(pipeline)s and b.lane = 'live' and b.published_at is not null and b.attempt > 0
order by b.published_at desc
limit 1
