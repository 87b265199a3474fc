-- name: list_work
-- By lane, so that the index of open batches answers each. A task that writes, or a statement that reads the staging of
-- the newest attempt, holds a lock on one of its tables.
with open_batch as (
    select * from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'live' and state not in ('published', 'discarded')
    union all
    select * from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'replay' and state not in ('published', 'discarded')
)
select b.batch_id, b.lane, b.state, b.attempt, a.run,
    greatest(b.planned_at, a.opened_at, a.staged_at, a.audited_at, a.ended_at), b.is_dry_run,
    exists (
        select from pg_locks l
        join pg_class c on c.oid = l.relation
        join pg_namespace n on n.oid = c.relnamespace and n.nspname = %(schema)s
        where l.database = (select oid from pg_database where datname = current_database())
            and starts_with(c.relname, 'b' || b.batch_id || '_a' || b.attempt || '_'))
from open_batch b
left join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
order by b.batch_id

-- name: insert_audit_result
insert into batchledger.audit_result (pipeline, audited_at, name, outcome, severity, detail, observed, validation)
values (
    %(pipeline)s, %(audited_at)s, %(name)s, %(outcome)s, %(severity)s, %(detail)s, %(observed)s, %(validation)s)
