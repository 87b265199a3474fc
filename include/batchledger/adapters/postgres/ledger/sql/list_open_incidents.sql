-- With what has become of the batch that an incident is about.
select i.pipeline, i.kind, i.subject, b.batch_id, b.state, exists (
    select from batchledger.decision d
    where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = b.attempt) as is_accepted
from batchledger.incident i
left join batchledger.batch b using (batch_id)
where i.pipeline = %(pipeline)s and i.ended_at is null
order by i.incident_id
