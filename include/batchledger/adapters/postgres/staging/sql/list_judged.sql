insert into batchledger.duplicate
    (batch_id, pipeline, topic, partition, "offset", first_topic, first_partition, first_offset, key_hash)
select %(batch_id)s, %(pipeline)s, _topic, _partition, _offset, first_topic, first_partition, first_offset, key_hash
from batchledger_judged
where is_duplicate
