-- The decision with which each of these pipelines is paused.
select d.decision_id, d.kind, d.pipeline, d.batch_id, d.decided_by, d.reason, d.decided_at, d.before, d.after
from batchledger.pipeline p
join batchledger.decision d on d.decision_id = p.pause_id
where p.name = any(%s)
