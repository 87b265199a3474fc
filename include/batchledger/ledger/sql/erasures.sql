-- name: remember_dropped
insert into batchledger.erased_offset (pipeline, topic, partition, "offset", leaves_version)
select %(pipeline)s, topic, partition, generate_series(start, until - 1), %(leaves_version)s
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as p (topic, partition, start, until)
on conflict do nothing
