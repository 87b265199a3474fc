delete from batchledger.deleted_key d
using batchledger_last l
where d.pipeline = l._pipeline and d.key_hash = l._key_hash and not l._is_deleted
    and {version_of_tombstone} <= {version_of_last}
