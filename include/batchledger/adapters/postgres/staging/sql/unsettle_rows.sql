-- A duplicate has to be judged anew when its first record lies in the ranges, and is not accepted there any more.
delete from batchledger_judged d
using unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as p (topic, partition, start, until)
where d.is_duplicate and p.topic = d.first_topic and p.partition = d.first_partition
    and d.first_offset >= p.start and d.first_offset < p.until
    and not exists (
        select from batchledger_judged f
        where not f.is_duplicate and f.key_hash = d.key_hash and f._topic = d.first_topic
            and f._partition = d.first_partition and f._offset = d.first_offset)
