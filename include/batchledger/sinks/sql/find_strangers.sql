-- Rows in these offsets that no batch of the ledger has written there, by partition. A lost batch may have had the number
-- of one that the ledger has planned since. The bounds around all ranges: see count_target_within.
select t._topic, t._partition, min(t._offset), max(t._offset) + 1, count(*)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as looked_at (topic, partition, start, until)
join {target} t
    on t._topic = looked_at.topic and t._partition = looked_at.partition
    and t._offset >= looked_at.start and t._offset < looked_at.until
where t._partition = any(%(partitions)s::int[]) and t._offset >= %(first)s and t._offset < %(last)s
    and not exists (
        select from batchledger.batch_range r
        join batchledger.batch b on b.batch_id = r.batch_id and b.rows_published_at is not null
        where r.batch_id = t._batch_id and r.pipeline = %(pipeline)s
            and r.topic = t._topic and r.partition = t._partition and r.offsets @> t._offset
    )
group by t._topic, t._partition
order by t._topic, t._partition
