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

-- name: list_old_batches
-- Published before the day (UTC) on which "keep" ended, and none of the newest that load_recent may ask for; in their
-- order. Only what a live run has published, and nothing else has to do with, has an epoch. A batch that is named by its
-- id holds no other batch up.
select b.batch_id, (b.published_at at time zone 'UTC')::date, case
        when b.state = 'published' and b.lane = 'live' and b.attempt > 0 and b.rows_published_at is not null
            and b.joined_from is null and r.is_whole
            and not exists (select from batchledger.decision where batch_id = b.batch_id)
            and not exists (select from batchledger.replacement where batch_id = b.batch_id)
            and not exists (select from batchledger.replacement where replaced_batch_id = b.batch_id)
            and not exists (select from batchledger.incident where batch_id = b.batch_id)
            and not exists (select from batchledger.payload_look where batch_id = b.batch_id)
        then r.epoch end
from batchledger.batch b
cross join lateral (
    select min(epoch) as epoch, min(epoch) = max(epoch) and bool_and(
        published_live and held = int8multirange(offsets)
        and duplicates + quarantined + accepted_loss + quarantine_dropped + rows_erased = 0) as is_whole
    from batchledger.batch_range where batch_id = b.batch_id) r
where b.pipeline = %(pipeline)s and b.batch_id between %(first)s and coalesce(%(last)s::bigint, (
        select batch_id from batchledger.batch
        where pipeline = %(pipeline)s and lane = 'live' and published_at is not null and attempt > 0
        order by batch_id desc offset %(kept)s limit 1), 0)
    and b.batch_id < coalesce((
        select batch_id from batchledger.batch
        where pipeline = %(pipeline)s and lane = 'live'
            and published_at >= date_trunc('day', now() - %(keep)s::interval, 'UTC')
        order by published_at limit 1), 9223372036854775807)
order by b.batch_id

-- name: join_ranges
-- The balances add up. If the ranges did not meet, the sum would leave offsets unexplained, which batch_range_balanced
-- refuses.
with joined as (
    delete from batchledger.batch_range where batch_id = any(%(ids)s) returning *
)
insert into batchledger.batch_range (
    batch_id, pipeline, topic, partition, epoch, published_live, offsets, held, accepted, duplicates, quarantined,
    tombstones, filtered, holes, accepted_loss, aborted, markers, compacted, untimed, timestamps)
select %(last)s, pipeline, topic, partition, epoch, true, range_merge(range_agg(offsets)),
    int8multirange(range_merge(range_agg(offsets))), sum(accepted), 0, 0, sum(tombstones), sum(filtered), sum(holes), 0,
    case when count(*) = count(compacted) then sum(aborted) end,
    case when count(*) = count(compacted) then sum(markers) end,
    case when count(*) = count(compacted) then sum(compacted) end,
    case when count(*) = count(untimed) then sum(untimed) end,
    case when count(*) = count(timestamps) then range_merge(range_agg(timestamps)) end
from joined
group by pipeline, topic, partition, epoch

-- name: keep_writer_schemas
insert into batchledger.attempt_writer_schema (batch_id, number, registry, id)
select distinct b.batch_id, b.attempt, u.registry, u.id
from batchledger.attempt_writer_schema u
join batchledger.batch b on b.batch_id = %(last)s
where u.batch_id = any(%(ids)s)
on conflict do nothing

-- name: keep_record_schemas
-- A policy refuses a row that names a batch that is not there.
update batchledger.record_schema
set first_batch_id = case when first_batch_id = any(%(ids)s) then %(last)s else first_batch_id end,
    last_batch_id = case when last_batch_id = any(%(ids)s) then %(last)s else last_batch_id end
where pipeline = %(pipeline)s and (first_batch_id = any(%(ids)s) or last_batch_id = any(%(ids)s))

-- name: join_batches
with joined as (
    delete from batchledger.batch where batch_id = any(%(ids)s) and batch_id <> %(last)s returning published_rows
)
update batchledger.batch
set joined_from = %(first)s, published_rows = published_rows + (select sum(published_rows) from joined)
where batch_id = %(last)s

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
