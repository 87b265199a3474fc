-- name: store_presence
insert into batchledger.presence (batch_id, run, worker, holder)
values (%(batch_id)s, %(run)s, %(worker)s, %(holder)s)
on conflict (batch_id) do update
set run = excluded.run, worker = excluded.worker, holder = excluded.holder, is_handed_on = false,
    since = clock_timestamp(), seen_at = clock_timestamp()

-- name: beat_presence
-- The lock is taken again if a lost connection, or a pool of connections, has let it go.
with beaten as (
    update batchledger.presence
    set seen_at = clock_timestamp()
    where batch_id = %(batch_id)s and holder = %(holder)s
)
select pg_try_advisory_lock(%(holder)s)
where not exists (
    select from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
        and l.database = (select oid from pg_database where datname = current_database())
        and l.classid::bigint = (%(holder)s >> 32) and l.objid::bigint = (%(holder)s & 4294967295))

-- name: end_presence
-- A batch that waits for its run's next step is handed on to it; at any other one no run is at work any more.
with handed_on as (
    update batchledger.presence p
    set is_handed_on = true, seen_at = clock_timestamp()
    from batchledger.batch b
    where p.batch_id = %(batch_id)s and p.holder = %(holder)s and %(has_ended_well)s
        and b.batch_id = p.batch_id and b.state not in ('published', 'blocked', 'discarded')
    returning p.batch_id
)
delete from batchledger.presence p
where p.batch_id = %(batch_id)s and p.holder = %(holder)s and not exists (select from handed_on)

-- name: find_presences
-- The lock of a number of 64 bits is shown as its two halves.
select p.batch_id, p.run, p.worker, p.since, extract(epoch from clock_timestamp() - p.seen_at)::float8,
    exists (
        select from pg_locks l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
            and l.database = (select oid from pg_database where datname = current_database())
            and l.classid::bigint = (p.holder >> 32) and l.objid::bigint = (p.holder & 4294967295)),
    p.is_handed_on
from batchledger.presence p
where p.batch_id = any(%(batch_ids)s)
