-- By which rules an attempt has made its rows, so that another version of the pipeline file stages again and publishes none
-- of them.

alter table batchledger.attempt add column row_rules text;
comment on column batchledger.attempt.row_rules is
    'The SHA-256 of what makes rows of records in the pipeline file: columns, source.protect, the transform. Null until the attempt is staged, or if an older version has staged it.';
