-- Erasure: how many rows people have erased of each range, and which keys stay erased if their records come again. And no
-- key of producers' numbering in clear text any more: the hash alone tells one from another.

alter table batchledger.batch_range
    add column rows_erased bigint not null default 0 check (rows_erased >= 0);
comment on column batchledger.batch_range.rows_erased is
    'How many of the accepted rows a person has erased from the target, or a publication has erased again; see decision.';

create table batchledger.erased_key (
    pipeline   text not null references batchledger.pipeline,
    columns    text[] not null,
    salt       bytea not null,
    key_hash   bytea not null,
    topic      text not null,
    partition  int not null,
    until      bigint not null,
    primary key (pipeline, columns, key_hash, topic, partition)
);
create index erased_key_by_offset on batchledger.erased_key (pipeline, topic, partition, until);
comment on table batchledger.erased_key is
    'The keys whose rows were erased. A publication erases rows of these keys again if their offsets lie before until. key_hash is sha256 of salt and the JSON array of the key''s values, as texts.';
comment on column batchledger.erased_key.salt is 'Random bytes, the same for all keys of a pipeline: a row is hashed once.';
comment on column batchledger.erased_key.until is
    'How far any batch had read the partition. What lies there or behind was read after the erasure.';

-- As migration 0028 does for the other tables.
alter table batchledger.erased_key enable row level security;
create policy own_pipelines on batchledger.erased_key using (
    (select batchledger.pipelines_of(current_user)) is null
    or pipeline = any ((select batchledger.pipelines_of(current_user))::text[]));

alter table batchledger.sequence
    drop column key;
comment on table batchledger.sequence is
    'What was seen of each producer''s own numbering. key_hash is sha256 of the JSON array of the columns'' names and the key''s values.';
