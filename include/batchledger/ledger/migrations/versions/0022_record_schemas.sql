-- The declared schemas that records were decoded with. A row for each pipeline and schema, whatever the number of
-- batches; attempts that an earlier version has staged name none.

create table batchledger.record_schema (
    schema_id       int generated always as identity primary key,
    pipeline        text not null,
    fingerprint     text not null,
    definition      text not null,
    first_used_at   timestamptz not null default clock_timestamp(),
    last_used_at    timestamptz not null default clock_timestamp(),
    first_batch_id  bigint not null,
    last_batch_id   bigint not null,
    unique (pipeline, fingerprint)
);
comment on table batchledger.record_schema is 'A schema that a pipeline has decoded records with; the fingerprint is the SHA-256 of its definition.';

create table batchledger.added_column (
    number    int generated always as identity primary key,
    pipeline  text not null,
    name      text not null,
    batch_id  bigint not null,
    added_at  timestamptz not null default clock_timestamp(),
    unique (pipeline, name)
);
comment on table batchledger.added_column is 'A column for a field that records have brought, with unknown_fields: add; batch_id is the first that had it.';

alter table batchledger.attempt add column schema_id int references batchledger.record_schema;
