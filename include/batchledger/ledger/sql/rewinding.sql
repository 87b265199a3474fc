-- name: forget_held
-- The target is empty: batches hold nothing any more, and quarantine and the list of duplicates are empty, too. Columns
-- may be hashed with another secret.
with quarantined as (
    delete from batchledger.quarantine where pipeline = %(pipeline)s
), duplicates as (
    delete from batchledger.duplicate where pipeline = %(pipeline)s
), secret as (
    update batchledger.pipeline set secret_fingerprint = null where name = %(pipeline)s
)
update batchledger.batch_range set held = '{}' where pipeline = %(pipeline)s and not isempty(held)
