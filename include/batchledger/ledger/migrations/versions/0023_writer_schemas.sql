-- The schemas that records were written with, as their registry had them when they were first needed. A replay decodes
-- the same records by the same schemas, also without the registry. An id means one schema for ever.

create table batchledger.writer_schema (
    registry       text not null,
    id             bigint not null,
    fingerprint    text not null,
    definition     text not null,
    first_used_at  timestamptz not null default clock_timestamp(),
    primary key (registry, id)
);
comment on table batchledger.writer_schema is 'A schema that records were written with; registry is the name of its connection, the fingerprint the SHA-256 of the definition.';

create table batchledger.attempt_writer_schema (
    batch_id  bigint not null,
    number    int not null,
    registry  text not null,
    id        bigint not null,
    primary key (batch_id, number, registry, id),
    foreign key (batch_id, number) references batchledger.attempt,
    foreign key (registry, id) references batchledger.writer_schema
);
comment on table batchledger.attempt_writer_schema is 'The schemas that records of an attempt have named.';
create index on batchledger.attempt_writer_schema (registry, id, batch_id);
