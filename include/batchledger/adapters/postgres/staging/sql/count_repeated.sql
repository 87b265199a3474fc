-- Two numbers per range, in the batch's order: duplicates, and those of them that were listed before.
select count(r._offset), count(r._offset) filter (where r.is_settled)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    with ordinality as p (topic, partition, start, until, ordinality)
left join batchledger_repeated r
    on r._topic = p.topic and r._partition = p.partition and r._offset >= p.start and r._offset < p.until
group by p.ordinality
order by p.ordinality
