-- By which rules an attempt has made its rows, so that another version of the pipeline file stages again and publishes none
-- of them.

alter table batchledger.attempt add column row_rules text;
comment on column batchledger.attempt.row_rules is
    'The SHA-256 of what makes rows of records in the pipeline file: columns, source.protect, the transform. Null until the attempt is staged, or if an older version has staged it.';

-- Erasure: where the erased records lie, whatever their rows look like by now; and as which type a key was hashed.

create table batchledger.erased_offset (
    pipeline        text not null references batchledger.pipeline,
    topic           text not null,
    partition       int not null,
    "offset"        bigint not null,
    leaves_version  boolean not null,
    primary key (pipeline, topic, partition, "offset")
);
comment on table batchledger.erased_offset is
    'The records whose rows were erased, duplicates of them, and records that were erased from quarantine. Whatever they decode to by now, none of them becomes a row, or lies in quarantine.';
comment on column batchledger.erased_offset.leaves_version is
    'Whether the record still counts as the newest state of its key in a target that is updated by key: its row is gone, and no older one comes back.';

-- As migration 0028 does for the other tables.
alter table batchledger.erased_offset enable row level security;
create policy own_pipelines on batchledger.erased_offset using (
    (select batchledger.pipelines_of(current_user)) is null
    or pipeline = any ((select batchledger.pipelines_of(current_user))::text[]));

alter table batchledger.erased_key add column types text[];
comment on column batchledger.erased_key.types is
    'The types of the columns when the key was erased, as PostgreSQL writes them. A whole number or a numeric is hashed by its value, without zeros at its end. Null if an older version has hashed the text of every value.';

alter table batchledger.deleted_key add column is_erased boolean not null default false;
comment on column batchledger.deleted_key.is_erased is
    'Whether an erased record is the newest of its key. It stays when its offsets are published again, and when the target is emptied.';
