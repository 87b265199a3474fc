-- Removes what the replaced batches set aside in the ranges that they give up, and keeps the count of all that goes.
with piece as (
    select *
    from unnest(
        %(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[],
        %(rows)s::bigint[]) as piece (batch_id, topic, partition, start, until, rows)
), quarantined as (
    delete from batchledger.quarantine q
    using piece p
    where q.pipeline = %(pipeline)s and q.topic = p.topic and q.partition = p.partition
        and q."offset" >= p.start and q."offset" < p.until
    returning q.topic, q.partition, q."offset"
), duplicates as (
    delete from batchledger.duplicate d
    using piece p
    where d.batch_id = p.batch_id and d.topic = p.topic and d.partition = p.partition
        and d."offset" >= p.start and d."offset" < p.until
    returning d.topic, d.partition, d."offset"
)
insert into batchledger.replacement
    (batch_id, replaced_batch_id, topic, partition, offsets, rows, quarantined, duplicates)
select %(batch_id)s, p.batch_id, p.topic, p.partition, int8range(p.start, p.until), p.rows,
    (select count(*) from quarantined q
     where q.topic = p.topic and q.partition = p.partition and q."offset" >= p.start and q."offset" < p.until),
    (select count(*) from duplicates d
     where d.topic = p.topic and d.partition = p.partition and d."offset" >= p.start and d."offset" < p.until)
from piece p
