-- name: list_pauses
-- The decision with which each of these pipelines is paused.
select d.decision_id, d.kind, d.pipeline, d.batch_id, d.decided_by, d.reason, d.decided_at, d.before, d.after, d.uid,
    d.host, d.database_role
from batchledger.pipeline p
join batchledger.decision d on d.decision_id = p.pause_id
where p.name = any(%s)

-- name: list_attempts_at_work
-- The open live batch of each of these pipelines, with how its newest attempt stands.
select b.pipeline, b.batch_id, b.state, a.run, a.number is not null and a.ended_at is null,
    a.failed_step, a.error
from batchledger.batch b
left join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
where b.pipeline = any(%s) and b.lane = 'live' and b.state not in ('published', 'discarded')

-- name: list_streams_given_up
-- Why the newest published batch of each of these pipelines was staged, if its rows began to stream.
select name, a.given_up
from unnest(%s::text[]) name
cross join lateral (
    select batch_id, attempt
    from batchledger.batch
    where pipeline = name and lane = 'live' and published_at is not null and attempt > 0 and joined_from is null
    order by published_at desc limit 1) b
join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt and a.given_up is not null

-- name: list_without_file
-- The pipelines that no file names and no person has retired, each with its open batches, as far as the role may see them.
-- Two partial indexes have the open batches.
select p.name, coalesce(o.batches, '{}')
from batchledger.pipeline p
left join batchledger.decision d on d.decision_id = p.pause_id
cross join (select batchledger.pipelines_of(current_user) as names) own
cross join lateral (
    select array_agg(format('batch %%s (%%s)', b.batch_id, b.state) order by b.batch_id) as batches
    from (
        select batch_id, state from batchledger.batch
        where pipeline = p.name and lane = 'live' and state not in ('published', 'discarded')
        union all
        select batch_id, state from batchledger.batch
        where pipeline = p.name and lane = 'replay' and state not in ('published', 'discarded') and not is_dry_run) b) o
where p.name <> all(%(named)s::text[]) and d.kind is distinct from 'retire'
    and (own.names is null or p.name = any(own.names))
order by p.name

-- name: list_last_batches
-- One look into the index a pipeline. Dry runs change nothing, so they are no news.
select name as pipeline, b.batch_id, b.state, b.planned_at, b.published_at, array(
    select jsonb_object_keys(c.observed -> 'fields') from batchledger.check_result c
    where c.batch_id = b.batch_id and c.attempt = b.attempt and c.name = 'no_unknown_fields' and c.outcome = 'failed'
    order by 1) as unknown_fields
from unnest(%s::text[]) name
cross join lateral (
    select batch_id, attempt, state, planned_at, published_at
    from batchledger.batch where pipeline = name and not is_dry_run order by batch_id desc limit 1) b

-- name: list_held
-- The offsets that published batches hold, put together.
select topic, partition, lower(part), upper(part)
from (
    select r.topic, r.partition, range_agg(piece) as held
    from batchledger.batch_range r
    cross join lateral unnest(r.held) as piece
    where r.pipeline = %(pipeline)s and not isempty(r.held)
    group by r.topic, r.partition) h
cross join lateral unnest(h.held) as part

-- name: list_held_since
-- The offsets that batches published since a moment hold, put together. "offset 0" as in find_published_since.
select topic, partition, lower(part), upper(part)
from (
    select h.topic, h.partition, range_agg(piece) as held
    from batchledger.batch b
    cross join lateral (
        select topic, partition, held from batchledger.batch_range where batch_id = b.batch_id offset 0) h
    cross join lateral unnest(h.held) as piece
    where b.pipeline = %(pipeline)s and b.state = 'published' and b.published_at >= %(since)s
    group by h.topic, h.partition) h
cross join lateral unnest(h.held) as part

-- name: list_given_up
-- Accepted losses and skips are batches of their own. If a replay has published offsets of them, these are not lost.
select r.topic, r.partition, lower(piece), upper(piece)
from batchledger.decision d
join batchledger.batch_range r on r.batch_id = d.batch_id and r.accepted_loss > 0
cross join lateral unnest(r.held) as piece
where d.pipeline = %(pipeline)s and d.kind in ('accept-loss', 'skip')

-- name: find_quarantined_offsets
-- How many offsets of each frame are in quarantine, and which, neighbours put together. If they are more than the
-- columns of a picture, the first of each column.
select f.topic, f.partition, n.count, lower(piece), upper(piece)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as f (topic, partition, start, until)
cross join lateral (
    select count(*) as count from batchledger.quarantine
    where pipeline = %(pipeline)s and topic = f.topic and partition = f.partition
        and "offset" >= f.start and "offset" < f.until) n
cross join lateral (
    select range_agg(int8range(first, first + 1)) as pieces
    from (
        select min("offset") as first from batchledger.quarantine
        where pipeline = %(pipeline)s and topic = f.topic and partition = f.partition
            and "offset" >= f.start and "offset" < f.until
        group by case
            when n.count <= %(columns)s then "offset"
            else div(("offset" - f.start)::numeric * %(columns)s, f.until - f.start) end) q) r
cross join lateral unnest(r.pieces) as piece
order by f.topic, f.partition, piece

-- name: list_holders
-- The limit is inside, so that PostgreSQL does not sort what is too much to be shown.
select r.batch_id, lower(piece), upper(piece)
from (
    select batch_id, held * int8multirange(int8range(%(start)s, %(until)s)) as mine
    from batchledger.batch_range
    where pipeline = %(pipeline)s and topic = %(topic)s and partition = %(partition)s
        and held && int8multirange(int8range(%(start)s, %(until)s)) and not isempty(held)
    limit %(limit)s) r
cross join lateral unnest(r.mine) as piece
order by 2

-- name: find_batch_of_run
-- A run may have planned one batch and taken up another: the newest counts. In a person's own DAG it has a name for each
-- place where the pipeline stands, and all begin with "RUN@DAG/".
select max(batch_id)
from (
    select batch_id from batchledger.batch
    where pipeline = %(pipeline)s and (planned_by = %(run)s or %(has_places)s and starts_with(planned_by, %(run)s))
    union all
    select b.batch_id
    from batchledger.attempt a
    join batchledger.batch b on b.batch_id = a.batch_id and b.pipeline = %(pipeline)s
    where a.run = %(run)s or %(has_places)s and starts_with(a.run, %(run)s)) found
