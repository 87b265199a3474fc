-- name: list_used_schemas
select w.registry, w.id, w.fingerprint, w.first_used_at, min(u.batch_id), max(u.batch_id), count(distinct u.batch_id)
from batchledger.attempt_writer_schema u
join batchledger.writer_schema w using (registry, id)
join batchledger.batch b using (batch_id)
where b.pipeline = %(pipeline)s
group by w.registry, w.id
order by max(u.batch_id) desc, w.registry, length(w.id) desc, w.id desc
limit %(limit)s
