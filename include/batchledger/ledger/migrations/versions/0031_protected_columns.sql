-- Columns that are hashed, masked or dropped (source.protect): which secret hashes them, quarantine without payloads, and
-- how rows held the keys that were erased.

alter table batchledger.pipeline add column secret_fingerprint bytea;
comment on column batchledger.pipeline.secret_fingerprint is
    'Tells the secret that columns of the pipeline are hashed with from another one: HMAC-SHA-256, by this secret, of a constant. Null if none was hashed yet.';

alter table batchledger.quarantine add column payload_kept boolean not null default true;
comment on column batchledger.quarantine.payload_kept is
    'False if the pipeline file protects columns: neither key, value nor headers of the record were written. Then all three are null.';

alter table batchledger.erased_key add column form text not null default '';
comment on column batchledger.erased_key.form is
    'How rows held the values of these columns: which of them were hashed, by the secret of which fingerprint. Empty if they held all of them as records do.';
