-- What the ledger knows of attempts. A batch that was planned at another time is that of another ledger.
select a.batch_id, a.number, a.planned_at, b.pipeline, b.state, b.attempt, t.outcome, t.ended_at, b.published_at
from unnest(%(batch_ids)s::bigint[], %(numbers)s::int[], %(planned_at)s::timestamptz[]) as a (batch_id, number, planned_at)
left join batchledger.batch b on b.batch_id = a.batch_id and b.planned_at = a.planned_at
left join batchledger.attempt t on t.batch_id = b.batch_id and t.number = a.number
