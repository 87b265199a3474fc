-- The newest records of their keys whose state the target does not show after the change: no row of that version or a
-- newer one, or a row that should be gone.
select count(*)
from batchledger_last l
where case when l._is_deleted then exists (
        select from {target} t where {same_key} and {version_of_target} <= {version_of_last})
    else not exists (
        select from {target} t where {same_key} and {version_of_target} >= {version_of_last})
    and not exists (
        select from batchledger.deleted_key d
        where d.pipeline = l._pipeline and d.key_hash = l._key_hash and {version_of_tombstone} > {version_of_last})
    end
