-- What is remembered of keys. Without foreign keys: a batch may insert a row for each of its records, and the check
-- would run once a row.

create table batchledger.message_key (
    pipeline          text not null,
    key_hash          bytea not null,
    topic             text not null,
    partition         int not null,
    "offset"          bigint not null,
    batch_id          bigint not null,
    remembered_until  timestamptz not null,
    primary key (pipeline, key_hash)
);
create index message_key_by_expiry on batchledger.message_key (pipeline, remembered_until);
comment on table batchledger.message_key is 'The first record of each message key. key_hash is sha256 of the JSON array of the key''s values.';
comment on column batchledger.message_key.remembered_until is 'A batch planned at this moment or later does not know the key any more.';

create table batchledger.duplicate (
    batch_id         bigint not null,
    pipeline         text not null,
    topic            text not null,
    partition        int not null,
    "offset"         bigint not null,
    first_topic      text not null,
    first_partition  int not null,
    first_offset     bigint not null,
    primary key (batch_id, topic, partition, "offset")
);
comment on table batchledger.duplicate is 'The records that a batch dropped, each with the record that came first with the same message key.';

create table batchledger.deleted_key (
    pipeline     text not null,
    key_hash     bytea not null,
    topic        text not null,
    partition    int not null,
    "offset"     bigint not null,
    "timestamp"  timestamptz,
    batch_id     bigint not null,
    primary key (pipeline, key_hash)
);
comment on table batchledger.deleted_key is 'The tombstone of each key that a target with mode upsert does not hold any more, so that an older record does not bring it back.';
