-- name: find_expired_keys
select m.ctid
from batchledger.message_key m
where m.pipeline = %(pipeline)s and m.remembered_until <= %(until)s
order by m.remembered_until
limit %(limit)s

-- name: find_old_validations
-- "offset" without a limit: the batch behind the newest ones, none when there are no more than these.
select c.ctid
from batchledger.check_result c
where c.validation is not null and c.batch_id in (
    select b.batch_id from batchledger.batch b
    where b.pipeline = %(pipeline)s and b.batch_id <= (
        select o.batch_id from batchledger.batch o
        where o.pipeline = %(pipeline)s order by o.batch_id desc offset %(kept)s limit 1))
limit %(limit)s

-- name: find_old_audits
-- The newest audit of a pipeline stays, however old it is. Failed results stay longer than others.
select r.ctid
from batchledger.audit_result r
where r.pipeline = %(pipeline)s
    and r.audited_at < case when r.outcome in ('failed', 'not_run') then %(before)s else %(passed_before)s end
    and r.audited_at < (select max(audited_at) from batchledger.audit_result where pipeline = %(pipeline)s)
order by r.audited_at
limit %(limit)s

-- name: find_old_incidents
-- Their messages go with them.
select i.ctid
from batchledger.incident i
where i.pipeline = %(pipeline)s and i.ended_at < %(before)s
order by i.ended_at
limit %(limit)s

-- name: find_old_texts
select a.ctid
from batchledger.attempt a
where a.quoted is not null and a.quoted_at < %(before)s
    and exists (select from batchledger.batch b where b.batch_id = a.batch_id and b.pipeline = %(pipeline)s)
limit %(limit)s

-- name: find_expired_quarantine
-- Records that an open quarantine replay has read stay until that is over.
select q.topic, q.partition, q."offset", q."offset" + 1
from batchledger.quarantine q
where q.pipeline = %(pipeline)s and q.quarantined_at < %(before)s
    and not exists (
        select from batchledger.batch b
        join batchledger.batch_range r on r.batch_id = b.batch_id
        where b.pipeline = q.pipeline and b.lane = 'replay' and b.state not in ('published', 'discarded')
            and b.origin = 'quarantine'
            and r.topic = q.topic and r.partition = q.partition and r.offsets @> q."offset")
order by q.quarantined_at
limit %(limit)s

-- name: list_staging
-- The tables of attempts that this login may drop, or the others, with what the ledger knows of them. One snapshot: an
-- attempt is there before its tables are.
select t.relname, found.parts[1]::bigint, found.parts[2]::int, b.pipeline, b.state, b.attempt, a.outcome, a.ended_at,
    b.published_at
from pg_class t
join pg_namespace n on n.oid = t.relnamespace and n.nspname = %(schema)s
cross join lateral regexp_match(t.relname, '^b(\d{1,18})_a(\d{1,9})_(?:open|rows|aside|arriving|records|files|listed|visible|quarantine)$') found (parts)
left join batchledger.batch b on b.batch_id = found.parts[1]::bigint
left join batchledger.attempt a on a.batch_id = b.batch_id and a.number = found.parts[2]::int
where t.relkind = 'r' and found.parts is not null and pg_has_role(t.relowner, 'usage') = %(is_own)s
order by 2, 3, 1
