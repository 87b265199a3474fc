-- Keys may be hashed with a secret that is not in the database. The ledger knows the secret by its fingerprint.

create table batchledger.key_secret (
    is_only      boolean primary key default true check (is_only),
    fingerprint  bytea not null,
    used_since   timestamptz not null default now(),
    used_by      text not null default session_user
);
comment on table batchledger.key_secret is
    'The fingerprint of the secret that keys are hashed with; see the command rekey. Without a row, they are hashed without a secret.';
comment on column batchledger.key_secret.fingerprint is
    'HMAC-SHA-256, by the secret, of a constant, as in pipeline.secret_fingerprint.';
comment on column batchledger.key_secret.used_by is
    'The login that hashed the keys with the secret: of the command rekey, or of migrate.';
-- Roles that were granted before read it, too: each transaction that hashes keys compares it.
grant select on batchledger.key_secret to public;

comment on table batchledger.message_key is
    'The first record of each message key. key_hash is sha256 of the JSON array of the key''s values, as PostgreSQL writes it; with a secret it is HMAC-SHA-256 of that, see key_secret.';
comment on table batchledger.sequence is
    'What was seen of each producer''s own numbering. key_hash is made as in message_key, of the columns'' names and the key''s values.';
comment on table batchledger.erased_key is
    'The keys whose rows were erased. A publication erases rows of these keys again if their offsets lie before until. key_hash is sha256 of salt and the JSON array of the key''s values, as texts; with a secret it is HMAC-SHA-256 of that, see key_secret.';
