-- name: list_open_batches
-- One partial index a lane. Attempts are counted back to the newest one that came to a result. An attempt at work has
-- no outcome yet; it has failed if one of its steps has left an error. An attempt that has taken a batch again has no
-- result until it was judged.
with open_batch as (
    select batch_id, attempt from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'live' and state not in ('published', 'discarded')
    union all
    select batch_id, attempt from batchledger.batch
    where pipeline = %(pipeline)s and lane = 'replay' and state not in ('published', 'discarded') and not is_dry_run
)
select b.batch_id, j.attempt as judged_attempt, f.failures, (
        select max(ended_at) from batchledger.attempt where batch_id = b.batch_id and outcome = 'blocked'
    ) as blocked_since, exists (
        select from batchledger.decision d
        where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = j.attempt) as is_accepted, (
        select failed_step from batchledger.attempt
        where batch_id = b.batch_id and error is not null order by number desc limit 1
    ) as failed_step
from open_batch b
cross join lateral (select max(attempt) as attempt from batchledger.check_result where batch_id = b.batch_id) j
cross join lateral (
    select count(*) as failures from batchledger.attempt each
    where each.batch_id = b.batch_id and (each.outcome in ('failed', 'fenced') or each.outcome is null and each.error is not null) and each.number > coalesce((
        select max(number) from batchledger.attempt
        where batch_id = b.batch_id and outcome not in ('failed', 'fenced')), 0)) f
order by b.batch_id

-- name: find_newest_published
-- The newest batch of each lane that a run has executed, the live one first: an accepted loss is none.
(
    select b.batch_id, b.lane, b.published_at, exists (
        select from batchledger.decision d
        where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = b.attempt) as is_accepted
    from batchledger.batch b
    where b.pipeline = %(pipeline)s and b.lane = 'live' and b.published_at is not null and b.attempt > 0
    order by b.published_at desc
    limit 1
) union all (
    select b.batch_id, b.lane, b.published_at, exists (
        select from batchledger.decision d
        where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = b.attempt) as is_accepted
    from batchledger.batch b
    where b.pipeline = %(pipeline)s and b.lane = 'replay' and b.published_at is not null and b.attempt > 0
    order by b.published_at desc
    limit 1
)

-- name: find_due_notification
-- Skips messages that another process is claiming. An end waits until its opening is delivered.
select n.notification_id, n.incident_id, n.event, n.tries
from batchledger.notification n
join batchledger.incident i using (incident_id)
where i.pipeline = %(pipeline)s and n.channel = %(channel)s and n.sent_at is null and n.given_up_at is null
    and n.next_try_at <= %(now)s
    and not exists (
        select from batchledger.notification earlier
        where earlier.incident_id = n.incident_id and earlier.channel = n.channel and earlier.sent_at is null
            and earlier.given_up_at is null and earlier.notification_id < n.notification_id)
order by n.notification_id
limit 1
for update of n skip locked

-- name: mark_failed
-- Gives a message up if the channel has refused it for long and taken others since. A channel that takes none is down.
update batchledger.notification n
set last_error = %(error)s, given_up_at = case when %(is_old)s and exists (
    select from batchledger.notification s
    join batchledger.incident i using (incident_id)
    where i.pipeline = %(pipeline)s and s.channel = n.channel and s.sent_at > %(since)s) then %(now)s::timestamptz end
where notification_id = %(notification_id)s and sent_at is null

-- name: find_failing_channels
-- Each with the last message of the pipeline that it has taken.
select f.channel, f.tries, f.unsent, f.last_error, (
    select s.sent_at
    from batchledger.notification s
    join batchledger.incident i using (incident_id)
    where i.pipeline = %(pipeline)s and s.channel = f.channel and s.sent_at is not null
    order by s.sent_at desc
    limit 1) as last_sent_at
from (
    select n.channel, max(n.tries) as tries, count(*) as unsent,
        (array_agg(n.last_error order by n.tries desc))[1] as last_error
    from batchledger.notification n
    join batchledger.incident i using (incident_id)
    where i.pipeline = %(pipeline)s and n.channel = any(%(channels)s) and n.sent_at is null and n.given_up_at is null
        and n.last_error is not null
    group by n.channel) f
order by f.channel

-- name: list_open_incidents
-- Each with the state of the batch that it is about.
select i.pipeline, i.kind, i.subject, b.batch_id, b.state, exists (
    select from batchledger.decision d
    where d.batch_id = b.batch_id and d.kind = 'accept' and (d.after ->> 'attempt')::int = b.attempt) as is_accepted
from batchledger.incident i
left join batchledger.batch b using (batch_id)
where i.pipeline = %(pipeline)s and i.ended_at is null
order by i.incident_id

-- name: insert_incident
insert into batchledger.incident (
    pipeline, kind, subject, severity, title, lines, command, batch_id, run, opened_at, seen_at)
values (
    %(pipeline)s, %(kind)s, %(subject)s, %(severity)s, %(title)s, %(lines)s, %(command)s, %(batch_id)s, %(run)s, %(now)s,
    %(now)s)
returning incident_id

-- name: update_incident
update batchledger.incident
set severity = %(severity)s, title = %(title)s, lines = %(lines)s, command = %(command)s, batch_id = %(batch_id)s,
    run = %(run)s, seen_at = %(seen_at)s, ended_at = %(ended_at)s, ending = %(ending)s
where incident_id = %(incident_id)s
