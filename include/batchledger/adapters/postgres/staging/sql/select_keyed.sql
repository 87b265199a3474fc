-- The pipeline is a column, for joins. Compared with a constant it makes PostgreSQL expect one key of a pipeline that is
-- newer than its statistics, and read the batch once for each of them.
select {pipeline}::text as pipeline, _topic, _partition, _offset, {key_hash} as key_hash
from {staging}
where ({key}) is not null
