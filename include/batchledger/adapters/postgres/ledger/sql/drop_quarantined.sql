-- Removes records from quarantine, and notes in the balances how many a person has removed.
with dropped as (
    delete from batchledger.quarantine q
    using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as asked (topic, partition, start, until)
    where q.pipeline = %(pipeline)s and q.topic = asked.topic and q.partition = asked.partition
        and q."offset" >= asked.start and q."offset" < asked.until
    returning q.batch_id, q.topic, q.partition, q."offset"
), noted as (
    update batchledger.batch_range r
    set quarantine_dropped = quarantine_dropped + of_range.records
    from (
        select h.batch_id, h.topic, h.partition, h.offsets, count(*) as records
        from dropped d
        join batchledger.batch_range h
            on h.batch_id = d.batch_id and h.topic = d.topic and h.partition = d.partition and h.offsets @> d."offset"
        group by h.batch_id, h.topic, h.partition, h.offsets) of_range
    where r.batch_id = of_range.batch_id and r.topic = of_range.topic and r.partition = of_range.partition
        and r.offsets = of_range.offsets
)
select topic, partition, "offset" from dropped order by topic, partition, "offset"
