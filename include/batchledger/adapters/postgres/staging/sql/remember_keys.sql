insert into batchledger.message_key (pipeline, key_hash, topic, partition, "offset", batch_id, remembered_until)
select distinct on (key_hash)
    %(pipeline)s, key_hash, _topic, _partition, _offset, %(batch_id)s, %(planned_at)s::timestamptz + %(remember)s
from ({keyed}) keyed
order by key_hash, _topic collate "C", _partition, _offset
on conflict (pipeline, key_hash) do nothing
