-- name: list_batches
select b.batch_id, b.lane, b.state, b.attempt, b.planned_by, b.planned_at, b.published_at, b.published_rows,
    extract(epoch from b.published_at - b.planned_at)::float8,
    r.ranges, r.offsets, r.quarantined, b.is_dry_run, r.rows_erased
from batchledger.batch b
cross join lateral (
    select count(*) as ranges, coalesce(sum(upper(offsets) - lower(offsets)), 0)::bigint as offsets,
        coalesce(sum(quarantined), 0)::bigint as quarantined, coalesce(sum(rows_erased), 0)::bigint as rows_erased
    from batchledger.batch_range where batch_id = b.batch_id) r
where b.pipeline = %(pipeline)s and (%(before)s::bigint is null or b.batch_id < %(before)s)
order by b.batch_id desc
limit %(limit)s

-- name: show_quarantined
-- The records of the ranges in quarantine whose bytes were kept, with these. "distinct on" names a record once if several ranges do.
select distinct on (q.topic, q.partition, q."offset")
    q.topic, q.partition, q."offset",
    coalesce(to_json(q."timestamp") #>> '{}', nullif(q.timestamp_ms, -1) || ' ms'), q.key, q.value, q.headers, q.error
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as asked (topic, partition, start, until)
join batchledger.quarantine q
    on q.pipeline = %(pipeline)s and q.topic = asked.topic and q.partition = asked.partition
    and q."offset" >= asked.start and q."offset" < asked.until and q.payload_kept
order by q.topic, q.partition, q."offset"
limit %(limit)s

-- name: list_published
-- Every range that was ever published, or the ranges of these batches, with what later batches have replaced and
-- removed of it.
select r.batch_id, r.topic, r.partition, lower(r.offsets), upper(r.offsets), r.accepted, r.quarantined, r.unexplained,
    b.rows_published_at is not null, r.duplicates, r.accepted_loss, b.lane, r.epoch,
    int8multirange(r.offsets) - r.held, removed.rows, coalesce(removed.quarantined, 0) + r.quarantine_dropped,
    removed.duplicates, r.quarantine_dropped, r.rows_erased
from batchledger.batch_range r
join batchledger.batch b on b.batch_id = r.batch_id
left join lateral (
    select sum(p.rows)::bigint as rows, sum(p.quarantined)::bigint as quarantined,
        sum(p.duplicates)::bigint as duplicates
    from batchledger.replacement p
    where r.held <> int8multirange(r.offsets)
        and p.replaced_batch_id = r.batch_id and p.topic = r.topic and p.partition = r.partition
        and p.offsets <@ r.offsets) removed on true
where r.pipeline = %(pipeline)s and b.state = 'published'
    and (%(asked)s::bigint[] is null or r.batch_id = any(%(asked)s))
order by r.topic, r.partition, r.offsets, r.batch_id

-- name: find_published_since
-- Batches that were published since then, and other batches that hold offsets of them: an accepted loss takes over
-- nothing. "offset 0" lets the constraint's index answer for each range: PostgreSQL expects thousands of holders of
-- one, and would rather read the whole history.
with recent as materialized (
    select r.batch_id, r.topic, r.partition, r.offsets
    from batchledger.batch b
    join batchledger.batch_range r on r.batch_id = b.batch_id
    where b.pipeline = %(pipeline)s and b.state = 'published' and b.published_at >= %(since)s
)
select batch_id from recent
union
select h.batch_id
from recent
cross join lateral (
    select holder.batch_id
    from batchledger.batch_range holder
    where holder.pipeline = %(pipeline)s and holder.topic = recent.topic and holder.partition = recent.partition
        and holder.held && recent.offsets and not isempty(holder.held)
    offset 0) h

-- name: list_chain
-- The decisions about a pipeline by number, each with the text that its hash is of. The function hash_decision has the
-- same text: the proof does not ask it, because a person could have replaced it.
select d.chain_number, d.decision_id, d.chain_hash,
    convert_to((jsonb_build_array(
        coalesce(d.recorded_as, d.pipeline), d.chain_number, d.decision_id, d.batch_id, d.kind, d.decided_by, d.reason,
        extract(epoch from d.decided_at), d.before, d.after, d.uid, d.host, d.database_role)
        || case when d.request_id is null and d.requested_order is null then '[]'::jsonb
            else jsonb_build_array(d.request_id, d.requested_by, d.requested_order) end)::text, 'UTF8')
from batchledger.decision d
where d.pipeline = %(pipeline)s
order by d.chain_number, d.decision_id
