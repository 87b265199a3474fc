-- With the last message of the pipeline that each of them has taken.
select f.channel, f.tries, f.unsent, f.last_error, (
    select s.sent_at
    from batchledger.notification s
    join batchledger.incident i using (incident_id)
    where i.pipeline = %(pipeline)s and s.channel = f.channel and s.sent_at is not null
    order by s.sent_at desc
    limit 1) as last_sent_at
from (
    select n.channel, max(n.tries) as tries, count(*) as unsent,
        (array_agg(n.last_error order by n.tries desc))[1] as last_error
    from batchledger.notification n
    join batchledger.incident i using (incident_id)
    where i.pipeline = %(pipeline)s and n.channel = any(%(channels)s) and n.sent_at is null and n.given_up_at is null
        and n.last_error is not null
    group by n.channel) f
order by f.channel
