select n.channel, max(n.tries), count(*), (array_agg(n.last_error order by n.tries desc))[1]
from batchledger.notification n
join batchledger.incident i using (incident_id)
where i.pipeline = %(pipeline)s and n.channel = any(%(channels)s) and n.sent_at is null and n.last_error is not null
group by n.channel
order by n.channel
