-- name: note_row_rules
update batchledger.attempt set row_rules = %(row_rules)s, given_up = %(given_up)s
where batch_id = %(batch_id)s and number = %(number)s

-- name: insert_schema
insert into batchledger.record_schema (pipeline, fingerprint, definition, first_batch_id, last_batch_id)
select %(pipeline)s, %(fingerprint)s, %(definition)s, %(batch_id)s, %(batch_id)s
where not exists (
    select from batchledger.record_schema where pipeline = %(pipeline)s and fingerprint = %(fingerprint)s)
on conflict (pipeline, fingerprint) do nothing

-- name: name_schema
with used as (
    update batchledger.record_schema
    set last_batch_id = greatest(last_batch_id, %(batch_id)s), last_used_at = clock_timestamp()
    where pipeline = %(pipeline)s and fingerprint = %(fingerprint)s
    returning schema_id)
update batchledger.attempt a set schema_id = used.schema_id
from used where a.batch_id = %(batch_id)s and a.number = %(number)s
