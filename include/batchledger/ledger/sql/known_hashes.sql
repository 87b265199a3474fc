-- name: find_erased_forms
-- How rows held the keys that were erased, of which a batch may bring records again. Only replays and rewound batches read
-- below "until".
select distinct e.columns, e.form
from batchledger.erased_key e
join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as mine (topic, partition, start, until)
    on mine.topic = e.topic and mine.partition = e.partition and mine.start < e.until
where e.pipeline = %(pipeline)s
order by e.columns, e.form
