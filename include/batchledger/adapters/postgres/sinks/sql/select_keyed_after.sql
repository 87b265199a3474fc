-- The newest record of each key, unless a row or a tombstone outside of the ranges is newer.
select {columns}, true as is_there
from batchledger_last l
where not l._is_deleted
    and not exists (select from {elsewhere} t where {same_key} and {version_of_target} > {version_of_last})
    and not exists (
        select from batchledger.deleted_key d
        where d.pipeline = l._pipeline and d.key_hash = l._key_hash and {version_of_tombstone} > {version_of_last}
            and not exists (
                select from planned p
                where p.topic = d.topic and p.partition = d.partition and d."offset" >= p.start
                    and d."offset" < p.until))
