-- After delete_rows: a row that is still there is newer than the tombstone.
insert into batchledger.deleted_key as d (pipeline, key_hash, topic, partition, "offset", "timestamp", batch_id)
select %(pipeline)s, l._key_hash, l._topic, l._partition, l._offset, l._timestamp, %(batch_id)s
from batchledger_last l
where l._is_deleted and not exists (select from {target} t where {same_key})
on conflict (pipeline, key_hash) do update
set topic = excluded.topic, partition = excluded.partition, "offset" = excluded."offset",
    "timestamp" = excluded."timestamp", batch_id = excluded.batch_id
where {version_of_tombstone} <= {version_of_excluded_tombstone}
