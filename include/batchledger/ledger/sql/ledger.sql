-- name: load_paces
-- An index takes the newest batches before anything is joined, so a long history costs nothing. Accepted batches are
-- left out, because they have waited for a person. A span is no batch that a run was busy with.
select r.offsets, extract(epoch from b.published_at - a.opened_at)::float8
from (
    select batch_id, attempt, published_at
    from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'live' and published_at is not null and joined_from is null
    order by published_at desc
    limit %(limit)s) b
join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
cross join lateral (
    select sum(upper(offsets) - lower(offsets))::bigint as offsets
    from batchledger.batch_range where batch_id = b.batch_id) r
where b.published_at > a.opened_at
    and not exists (select from batchledger.decision d where d.batch_id = b.batch_id and d.kind = 'accept')
order by b.published_at desc

-- name: load_recent
-- An index takes the newest batches before anything is joined, so a long history costs nothing. No run has executed a
-- batch without an attempt (an accepted loss), or a span.
select b.batch_id, r.accepted, coalesce(c.observed, '{}'),
    exists (select from batchledger.attempt a where a.batch_id = b.batch_id and a.given_up is not null)
from (
    select batch_id, attempt, published_at
    from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'live' and published_at is not null and attempt > 0
        and joined_from is null
    order by published_at desc
    limit %(limit)s) b
cross join lateral (
    select sum(accepted)::bigint as accepted from batchledger.batch_range where batch_id = b.batch_id) r
cross join lateral (
    select jsonb_object_agg(name, observed) as observed
    from batchledger.check_result
    where batch_id = b.batch_id and attempt = b.attempt and suite = 'pipeline') c
order by b.published_at desc, b.batch_id desc

-- name: insert_replay_ranges
-- Ranges of a replay; they need not meet the position.
insert into batchledger.batch_range (batch_id, pipeline, topic, partition, offsets, epoch)
select %(batch_id)s, p.name, planned.topic, planned.partition, int8range(planned.start, planned.until), p.epoch
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as planned (topic, partition, start, until)
join batchledger.pipeline p on p.name = %(pipeline)s

-- name: find_held
-- Who holds which of the ranges now: published batches, whose rows these are. "offset 0" as in find_published_since.
select h.batch_id, h.topic, h.partition, lower(piece), upper(piece)
from (
    select topic, partition, range_agg(int8range(start, until)) as offsets
    from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as asked (topic, partition, start, until)
    group by topic, partition) asked
cross join lateral (
    select holder.batch_id, holder.topic, holder.partition, holder.held
    from batchledger.batch_range holder
    where holder.pipeline = %(pipeline)s and holder.topic = asked.topic and holder.partition = asked.partition
        and holder.held && asked.offsets and not isempty(holder.held)
    offset 0) h
cross join lateral unnest(h.held * asked.offsets) as piece
order by h.topic, h.partition, piece

-- name: find_published
-- The offsets that the exclusion constraint batch_range_disjoint would refuse to publish once more. "offset 0" as in
-- find_published_since.
select h.batch_id, h.topic, h.partition, lower(h.offsets * mine.offsets), upper(h.offsets * mine.offsets)
from batchledger.batch_range mine
cross join lateral (
    select other.batch_id, other.topic, other.partition, other.offsets
    from batchledger.batch_range other
    where other.pipeline = mine.pipeline and other.topic = mine.topic and other.partition = mine.partition
        and other.epoch = mine.epoch and other.offsets && mine.offsets and other.published_live
        and other.batch_id <> mine.batch_id
    offset 0) h
where mine.batch_id = %(batch_id)s
order by h.topic, h.partition, h.offsets

-- name: note_held_back
-- The moment stays as long as the offset does; a partition that is not named is not held back any more. A position that
-- is being moved is left to the next plan: a publication may hold it for minutes.
with changed as (
    select p.topic, p.partition, seen.at
    from batchledger.position p
    left join unnest(%(topics)s::text[], %(partitions)s::int[], %(offsets)s::bigint[]) as seen (topic, partition, at)
        using (topic, partition)
    where p.pipeline = %(pipeline)s and p.held_back_at is distinct from seen.at
    for no key update of p skip locked
)
update batchledger.position p
set held_back_at = changed.at, held_back_since = case when changed.at is not null then now() end
from changed
where p.pipeline = %(pipeline)s and p.topic = changed.topic and p.partition = changed.partition

-- name: end_streams
-- An earlier attempt may stand still in a COPY, which no time limit of the database ends. An idle transaction ends by
-- itself, and may be about to commit. A session of another role is left.
select pg_terminate_backend(pid)
from pg_stat_activity
where datname = current_database() and application_name = %s and state = 'active' and query ilike 'copy %%'
    and pg_has_role(usesysid, 'usage')

-- name: open_attempt
with taken as (
    update batchledger.batch
    set attempt = attempt + 1, state = 'planned', reported_rows = null
    where batch_id = %(batch_id)s and state not in ('published', 'discarded', 'committing')
    returning batch_id, attempt
), fenced as (
    update batchledger.attempt a
    set ended_at = clock_timestamp(), outcome = 'fenced'
    from taken
    where a.batch_id = taken.batch_id and a.outcome is null
)
insert into batchledger.attempt (batch_id, number, run)
select batch_id, attempt, %(run)s from taken
returning number

-- name: load_staged
select b.reported_rows, a.row_rules
from batchledger.batch b
join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
where b.batch_id = %s and b.attempt = %s and b.reported_rows is not null

-- name: record_failure
-- An attempt that could not stage is over; a later step may be repeated, and keeps its newest error.
update batchledger.attempt
set error = %(error)s, failed_step = %(step)s,
    ended_at = case when %(step)s = 'stage' then clock_timestamp() end,
    outcome = case when %(step)s = 'stage' then 'failed' end
where batch_id = %(batch_id)s and number = %(number)s and outcome is null

-- name: resume_commit
with taken as (
    update batchledger.batch
    set state = state
    where batch_id = %(batch_id)s and state = 'committing'
    returning batch_id, attempt
)
update batchledger.attempt a
set run = %(run)s
from taken
where a.batch_id = taken.batch_id and a.number = taken.attempt
