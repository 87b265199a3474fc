-- name: add_to_totals
-- Call it once for a batch that was just published or discarded. The seconds are its attempt's, unless the attempt had
-- ended before: it was blocked, and its last step would hold the time that a person took to accept it.
insert into batchledger.pipeline_total as total (
    pipeline, published, discarded, accepted, duplicates, quarantined, tombstones, filtered, holes, accepted_loss,
    unexplained, timed, stage_seconds, audit_seconds, publish_seconds)
select b.pipeline, (b.state = 'published')::int, (b.state = 'discarded')::int, r.*, s.*
from batchledger.batch b
cross join lateral (
    select coalesce(sum(accepted), 0), coalesce(sum(duplicates), 0), coalesce(sum(quarantined), 0),
        coalesce(sum(tombstones), 0), coalesce(sum(filtered), 0), coalesce(sum(holes), 0),
        coalesce(sum(accepted_loss), 0), coalesce(sum(abs(unexplained)), 0)
    from batchledger.batch_range where batch_id = b.batch_id and b.state = 'published') r
cross join lateral (
    select count(*), coalesce(sum(greatest(0, extract(epoch from staged_at - opened_at))), 0),
        coalesce(sum(greatest(0, extract(epoch from audited_at - staged_at))), 0),
        coalesce(sum(greatest(0, extract(epoch from b.published_at - audited_at))), 0)
    from batchledger.attempt
    where batch_id = b.batch_id and number = b.attempt and ended_at is null and staged_at is not null
        and audited_at is not null and b.state = 'published') s
where b.batch_id = %(batch_id)s and not b.is_dry_run
on conflict (pipeline) do update set
    published = total.published + excluded.published,
    discarded = total.discarded + excluded.discarded,
    accepted = total.accepted + excluded.accepted,
    duplicates = total.duplicates + excluded.duplicates,
    quarantined = total.quarantined + excluded.quarantined,
    tombstones = total.tombstones + excluded.tombstones,
    filtered = total.filtered + excluded.filtered,
    holes = total.holes + excluded.holes,
    accepted_loss = total.accepted_loss + excluded.accepted_loss,
    unexplained = total.unexplained + excluded.unexplained,
    timed = total.timed + excluded.timed,
    stage_seconds = total.stage_seconds + excluded.stage_seconds,
    audit_seconds = total.audit_seconds + excluded.audit_seconds,
    publish_seconds = total.publish_seconds + excluded.publish_seconds

-- name: load_totals
-- One look into an index a pipeline. An accepted loss or a skip, which has no attempt, makes nothing fresh.
select p.name, p.created_at, n.published_at, t.published, t.discarded, t.accepted, t.duplicates, t.quarantined,
    t.tombstones, t.filtered, t.holes, t.accepted_loss, t.unexplained, t.timed, t.stage_seconds, t.audit_seconds,
    t.publish_seconds
from batchledger.pipeline p
left join batchledger.pipeline_total t on t.pipeline = p.name
left join lateral (
    select published_at from batchledger.batch
    where pipeline = p.name and lane = 'live' and published_at is not null and attempt > 0
    order by published_at desc limit 1) n on true
where p.name = any(%(pipelines)s)

-- name: count_open_batches
-- A partial index for each lane has the open batches, and no other batch.
select pipeline, state, count(*), coalesce(sum(unexplained), 0)::bigint
from (
    select batch_id, pipeline, state from batchledger.batch
    where pipeline = any(%(pipelines)s) and lane = 'live' and state not in ('published', 'discarded')
    union all
    select batch_id, pipeline, state from batchledger.batch
    where pipeline = any(%(pipelines)s) and lane = 'replay' and state not in ('published', 'discarded')
        and not is_dry_run) b
cross join lateral (
    select sum(abs(unexplained)) as unexplained from batchledger.batch_range where batch_id = b.batch_id) r
group by pipeline, state

-- name: count_open_incidents
select pipeline, kind, count(*)
from batchledger.incident
where pipeline = any(%(pipelines)s) and ended_at is null
group by pipeline, kind
