-- Given up is what was refused for long by a channel that has taken others since; one that takes nothing is down.
update batchledger.notification n
set last_error = %(error)s, given_up_at = case when %(is_old)s and exists (
    select from batchledger.notification s
    join batchledger.incident i using (incident_id)
    where i.pipeline = %(pipeline)s and s.channel = n.channel and s.sent_at > %(since)s) then %(now)s::timestamptz end
where notification_id = %(notification_id)s and sent_at is null
