-- A key belongs to the batch that writes the row of its first record; how long it is remembered does not change.
update batchledger.message_key m
set batch_id = %(batch_id)s
from batchledger_judged j
where j.is_settled and not j.is_duplicate and m.pipeline = %(pipeline)s and m.key_hash = j.key_hash
    and m.topic = j._topic and m.partition = j._partition and m."offset" = j._offset
