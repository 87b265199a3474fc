-- name: insert_look
insert into batchledger.payload_look (pipeline, batch_id, records, ranges, errors, looked_by, uid, host)
values (%(pipeline)s, %(batch_id)s, %(records)s, %(ranges)s, %(errors)s, %(looked_by)s, %(uid)s, %(host)s)

-- name: list_looks
-- The newest first.
select look_id, pipeline, batch_id, records, ranges, errors, looked_at, looked_by, uid, host, database_role
from batchledger.payload_look
where pipeline = %(pipeline)s
order by look_id desc
limit %(limit)s
