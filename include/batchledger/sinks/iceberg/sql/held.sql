-- name: find_gone_from_lake
-- Rows that the table held of the batch's ranges and keys, and holds no more; the batch's own rows are written again.
select b._topic, b._partition, b._offset
from batchledger_lake_before b
where not exists (
    select from batchledger_lake h
    where h._topic = b._topic and h._partition = b._partition and h._offset = b._offset and h._batch_id is distinct from %s)
