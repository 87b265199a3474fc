insert into {target} as t ({columns}, _batch_id)
select {columns}, %(batch_id)s
from batchledger_last l
where not l._is_deleted and not exists (
    select from batchledger.deleted_key d
    where d.pipeline = l._pipeline and d.key_hash = l._key_hash and {version_of_tombstone} > {version_of_last})
on conflict ({key}) do update
set {assignments}, _batch_id = excluded._batch_id
where {version_of_target} <= {version_of_excluded}
