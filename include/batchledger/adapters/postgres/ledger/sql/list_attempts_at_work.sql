-- The open live batch of each of these pipelines, with how its newest attempt stands.
select b.pipeline, b.batch_id, b.state, a.run, a.number is not null and a.ended_at is null,
    a.failed_step, a.error
from batchledger.batch b
left join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
where b.pipeline = any(%s) and b.lane = 'live' and b.state not in ('published', 'discarded')
