-- The lock is taken again where a connection that was lost, or a pool of connections, has let it go.
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
