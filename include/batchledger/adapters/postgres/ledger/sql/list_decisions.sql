-- The newest first: of one batch, of one kind, or the one with which the pipeline is paused.
select d.decision_id, d.kind, d.pipeline, d.batch_id, d.decided_by, d.reason, d.decided_at, d.before, d.after
from batchledger.decision d
join batchledger.pipeline p on p.name = d.pipeline
where (%(pipeline)s::text is null or d.pipeline = %(pipeline)s)
    and (%(batch_id)s::bigint is null or d.batch_id = %(batch_id)s)
    and (%(kind)s::text is null or d.kind = %(kind)s)
    and (not %(is_pausing)s or d.decision_id = p.pause_id)
order by d.decision_id desc
limit %(limit)s
