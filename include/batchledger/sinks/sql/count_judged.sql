-- Two numbers per range, in the batch's order: duplicates, and those of them that were listed before.
select count(j._offset), count(j._offset) filter (where j.is_settled)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    with ordinality as p (topic, partition, start, until, ordinality)
left join batchledger_judged j
    on j.is_duplicate and j._topic = p.topic and j._partition = p.partition
    and j._offset >= p.start and j._offset < p.until
group by p.ordinality
order by p.ordinality
