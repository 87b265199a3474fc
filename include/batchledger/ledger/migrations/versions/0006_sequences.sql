-- The numbers that published batches have brought, of each key of a pipeline with a sequence. One row a key.

create table batchledger.sequence (
    pipeline  text not null,
    key_hash  bytea not null,
    key       text not null,
    run       int not null,
    seen      int8multirange not null,
    batch_id  bigint not null,
    primary key (pipeline, key_hash)
);
comment on table batchledger.sequence is 'What was seen of each producer''s own numbering. key_hash is sha256 of the JSON array of the columns'' names and the key''s values, key holds the values.';
comment on column batchledger.sequence.run is 'How often the numbering has begun, the first time included; seen is of the newest one.';
comment on column batchledger.sequence.seen is 'The numbers that were seen. Between them lie those that are known to be missing.';
comment on column batchledger.sequence.batch_id is 'The batch that has brought the newest numbers.';
