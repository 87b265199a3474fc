-- After remember_keys every key of the batch has its first record in message_key, from this batch or an earlier one.
with keyed as materialized (
    {keyed}
)
insert into batchledger.duplicate
    (batch_id, pipeline, topic, partition, "offset", first_topic, first_partition, first_offset, key_hash)
select %(batch_id)s, k.pipeline, k._topic, k._partition, k._offset, m.topic, m.partition, m."offset", k.key_hash
from keyed k
join batchledger.message_key m on m.pipeline = k.pipeline and m.key_hash = k.key_hash
where (k._topic, k._partition, k._offset) <> (m.topic, m.partition, m."offset")
