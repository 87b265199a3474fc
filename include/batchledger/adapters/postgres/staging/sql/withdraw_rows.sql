-- Removes the rows of the batch's ranges, whoever wrote them; they stay known until the transaction ends.
with removed as (
    delete from {target} t
    using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as p (topic, partition, start, until)
    where t._topic = p.topic and t._partition = p.partition and t._offset >= p.start and t._offset < p.until
    returning {removed}
)
insert into batchledger_withdrawn ({columns})
select * from removed
