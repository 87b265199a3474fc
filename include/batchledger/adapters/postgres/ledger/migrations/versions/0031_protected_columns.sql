-- Columns that are hashed, masked or dropped (source.protect): which secret hashes them, and quarantine without payloads.

alter table batchledger.pipeline add column secret_fingerprint bytea;
comment on column batchledger.pipeline.secret_fingerprint is
    'Tells the secret that columns of the pipeline are hashed with from another one: HMAC-SHA-256, by this secret, of a constant. Null if none was hashed yet.';

alter table batchledger.quarantine add column payload_kept boolean not null default true;
comment on column batchledger.quarantine.payload_kept is
    'False if the pipeline file protects columns: neither key, value nor headers of the record were written. Then all three are null.';
