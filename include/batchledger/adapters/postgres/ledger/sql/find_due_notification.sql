-- What another process is claiming at this moment is passed over. An end waits until its opening is delivered.
select n.notification_id, n.incident_id, n.event, n.tries
from batchledger.notification n
join batchledger.incident i using (incident_id)
where i.pipeline = %(pipeline)s and n.channel = %(channel)s and n.sent_at is null and n.given_up_at is null
    and n.next_try_at <= %(now)s
    and not exists (
        select from batchledger.notification earlier
        where earlier.incident_id = n.incident_id and earlier.channel = n.channel and earlier.sent_at is null
            and earlier.given_up_at is null and earlier.notification_id < n.notification_id)
order by n.notification_id
limit 1
for update of n skip locked
