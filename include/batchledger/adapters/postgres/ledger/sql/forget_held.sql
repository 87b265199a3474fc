-- The target is empty: no batch holds anything any more, nor do quarantine and the list of duplicates.
with quarantined as (
    delete from batchledger.quarantine where pipeline = %(pipeline)s
), duplicates as (
    delete from batchledger.duplicate where pipeline = %(pipeline)s
)
update batchledger.batch_range set held = '{}' where pipeline = %(pipeline)s and not isempty(held)
