-- name: list_open_requests
-- What waits for a second person, the oldest first, of one pipeline or of all.
select d.decision_id, d.kind, d.pipeline, d.batch_id, d.decided_by, d.reason, d.decided_at, d.before, d.after, d.uid,
    d.host, d.database_role, d.request_id, d.requested_by, d.requested_order
from batchledger.decision d
where d.kind = 'request' and d.decided_at > clock_timestamp() - %(valid)s::interval
    and (%(pipeline)s::text is null or d.pipeline = %(pipeline)s)
    and not exists (select from batchledger.decision e where e.request_id = d.decision_id)
order by d.decision_id
