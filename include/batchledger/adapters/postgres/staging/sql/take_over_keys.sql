-- A key belongs to the batch that writes the row of its first record; how long it is remembered does not change.
with accepted as materialized (
    select %(pipeline)s::text as pipeline, j.*
    from batchledger_judged j
    where j.is_settled and not j.is_duplicate
)
update batchledger.message_key m
set batch_id = %(batch_id)s
from accepted a
where m.pipeline = a.pipeline and m.key_hash = a.key_hash
    and m.topic = a._topic and m.partition = a._partition and m."offset" = a._offset
