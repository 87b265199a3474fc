-- Keys whose newest known record is not among those that replace it, nor is a newer one.
select count(distinct d.key_hash)
from batchledger_withdrawn_key d
where not exists (
    select from batchledger_last l where l._key_hash = d.key_hash and {version_of_last} >= {version_of_tombstone})
