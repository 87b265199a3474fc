-- The lock of a number of 64 bits is shown as its two halves.
select p.batch_id, p.run, p.worker, p.since, extract(epoch from clock_timestamp() - p.seen_at)::float8,
    exists (
        select from pg_locks l
        where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
            and l.database = (select oid from pg_database where datname = current_database())
            and l.classid::bigint = (p.holder >> 32) and l.objid::bigint = (p.holder & 4294967295)),
    p.is_handed_on
from batchledger.presence p
where p.batch_id = %(batch_id)s
