-- name: insert_positions
insert into batchledger.position (pipeline, topic, partition, origin_offset, next_offset, cluster_id, topic_id)
select %(pipeline)s, first.topic, first.partition, first.start, first.start, first.cluster_id, first.topic_id
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(clusters)s::text[], %(topic_ids)s::text[])
    as first (topic, partition, start, cluster_id, topic_id)
on conflict do nothing

-- name: find_batch
select b.batch_id, b.pipeline, b.lane, b.state, b.attempt, a.run, b.lag_left_records, b.planned_at, b.delivery,
    b.origin, b.is_dry_run, b.announced_ends
from batchledger.batch b
left join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
where b.batch_id = %(batch_id)s
   or (b.pipeline = %(pipeline)s and b.request_key = %(key)s)
   or (b.pipeline = %(pipeline)s and %(key)s::text is null and b.lane = 'live'
       and b.state not in ('published', 'discarded'))

-- name: insert_ranges
-- A range is stored only if it starts at the stored position; the caller compares the number of rows. The epoch is looked
-- up once, not once a range.
insert into batchledger.batch_range (batch_id, pipeline, topic, partition, offsets, epoch)
select %(batch_id)s, p.pipeline, p.topic, p.partition, int8range(planned.start, planned.until),
    (select epoch from batchledger.pipeline where name = %(pipeline)s)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as planned (topic, partition, start, until)
join batchledger.position p
    on p.pipeline = %(pipeline)s and p.topic = planned.topic and p.partition = planned.partition
    and p.next_offset = planned.start

-- name: store_balances
-- Times that were not read stay as they are: an audit may have noted them before.
update batchledger.batch_range r
set accepted = b.accepted, duplicates = b.duplicates, quarantined = b.quarantined, tombstones = b.tombstones,
    filtered = b.filtered, aborted = b.aborted, markers = b.markers, compacted = b.compacted,
    holes = b.aborted + b.markers + b.compacted, accepted_loss = b.accepted_loss,
    timestamps = case when b.untimed is null then r.timestamps when b.first_ms is null then 'empty'
        else int8range(b.first_ms, b.last_ms, '[]') end,
    untimed = coalesce(b.untimed, r.untimed)
from unnest(
    %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[], %(accepted)s::bigint[],
    %(duplicates)s::bigint[], %(quarantined)s::bigint[], %(tombstones)s::bigint[], %(filtered)s::bigint[],
    %(aborted)s::bigint[], %(markers)s::bigint[], %(compacted)s::bigint[], %(accepted_loss)s::bigint[],
    %(first_ms)s::bigint[], %(last_ms)s::bigint[], %(untimed)s::bigint[]
) as b (
    topic, partition, start, until, accepted,
    duplicates, quarantined, tombstones, filtered,
    aborted, markers, compacted, accepted_loss,
    first_ms, last_ms, untimed)
where r.batch_id = %(batch_id)s and r.topic = b.topic and r.partition = b.partition
    and r.offsets = int8range(b.start, b.until)

-- name: insert_decision
insert into batchledger.decision (
    pipeline, batch_id, kind, decided_by, reason, before, after, uid, host, request_id, requested_order)
values (
    %(pipeline)s, %(batch_id)s, %(kind)s, %(decided_by)s, %(reason)s, %(before)s, %(after)s, %(uid)s, %(host)s,
    %(request_id)s, %(requested_order)s)
returning decision_id, kind, pipeline, batch_id, decided_by, reason, decided_at, before, after, uid, host, database_role,
    request_id, requested_by, requested_order

-- name: list_decisions
-- The newest first: of one batch, of one kind, the one that ends a request, or the one with which the pipeline is paused.
select d.decision_id, d.kind, d.pipeline, d.batch_id, d.decided_by, d.reason, d.decided_at, d.before, d.after, d.uid,
    d.host, d.database_role, d.request_id, d.requested_by, d.requested_order
from batchledger.decision d
join batchledger.pipeline p on p.name = d.pipeline
where (%(pipeline)s::text is null or d.pipeline = %(pipeline)s)
    and (%(batch_id)s::bigint is null or d.batch_id = %(batch_id)s)
    and (%(kind)s::text is null or d.kind = %(kind)s)
    and (%(decision_id)s::bigint is null or d.decision_id = %(decision_id)s)
    and (%(request_id)s::bigint is null or d.request_id = %(request_id)s)
    and (not %(is_pausing)s or d.decision_id = p.pause_id)
order by d.decision_id desc
limit %(limit)s

-- name: find_quarantined
-- The records of the ranges in quarantine, or all of it. "union" names a record once, even if several ranges do.
select q.topic, q.partition, q."offset", coalesce(length(q.key), 0) + coalesce(length(q.value), 0), q.payload_kept
from batchledger.quarantine q
where q.pipeline = %(pipeline)s and %(topics)s::text[] is null
union
select q.topic, q.partition, q."offset", coalesce(length(q.key), 0) + coalesce(length(q.value), 0), q.payload_kept
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as asked (topic, partition, start, until)
join batchledger.quarantine q
    on q.pipeline = %(pipeline)s and q.topic = asked.topic and q.partition = asked.partition
    and q."offset" >= asked.start and q."offset" < asked.until
order by 1, 2, 3

-- name: list_quarantine_kinds
-- How many records each of these pipelines has in quarantine, of how many kinds of error, and the most frequent kinds.
select pipeline, total, kinds, error, records
from (
    select pipeline, error, records, (sum(records) over whole)::bigint as total, count(*) over whole as kinds,
        row_number() over (partition by pipeline order by records desc, error collate "C") as place
    from batchledger.quarantine_kind
    where pipeline = any(%(pipelines)s)
    window whole as (partition by pipeline)) k
where place <= %(limit)s
order by pipeline, place

-- name: insert_check_result
-- A target may refuse a batch once more after a person has accepted it. A stream's transaction began before its read.
insert into batchledger.check_result
    (batch_id, attempt, name, outcome, detail, observed, severity, suite, validation, on_failure, judged_at)
values (
    %(batch_id)s, %(attempt)s, %(name)s, %(outcome)s, %(detail)s, %(observed)s, %(severity)s, %(suite)s, %(validation)s,
    %(on_failure)s, clock_timestamp())
on conflict (batch_id, attempt, name) do update
set outcome = excluded.outcome, detail = excluded.detail, observed = excluded.observed, severity = excluded.severity,
    suite = excluded.suite, validation = excluded.validation, on_failure = excluded.on_failure, judged_at = excluded.judged_at
