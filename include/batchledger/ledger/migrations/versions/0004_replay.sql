-- Replays: which batch holds which offsets now, who replaced whom, epochs, and everything that people decide.

alter table batchledger.pipeline
    add column epoch  int not null default 0;
comment on column batchledger.pipeline.epoch is 'How often the pipeline was rewound; the live ranges of one epoch never overlap (I2).';

alter table batchledger.position
    add column rewound_to  bigint,
    add constraint position_rewound_within check (rewound_to between origin_offset and next_offset);
comment on column batchledger.position.rewound_to is 'Where the live batches of this epoch begin; null: at the origin.';

alter table batchledger.batch
    add column request_key  text,
    add column origin       text not null default 'kafka' check (origin in ('kafka', 'quarantine')),
    add column is_dry_run   boolean not null default false,
    add constraint batch_dry_run_stays_invisible check (not (is_dry_run and state = 'published'));
create unique index batch_by_request on batchledger.batch (pipeline, request_key) where request_key is not null;
comment on column batchledger.batch.origin is 'Where records are read: from Kafka, or the bytes that quarantine has kept of them.';
comment on column batchledger.batch.is_dry_run is 'Staged and audited to be compared with the target, then discarded.';
comment on column batchledger.batch.request_key is 'Which request a replay belongs to, so that a plan step that is tried again finds its own batch.';
create index batch_open_replay on batchledger.batch (pipeline)
    where lane = 'replay' and state not in ('published', 'discarded');

alter table batchledger.attempt
    drop constraint attempt_outcome_check,
    add constraint attempt_outcome_check check (outcome in ('published', 'blocked', 'fenced', 'failed', 'compared'));

alter table batchledger.batch_range
    add column epoch               int not null default 0,
    add column held                int8multirange not null default '{}',
    add column quarantine_dropped  bigint not null default 0;
update batchledger.batch_range set held = int8multirange(offsets) where published_live;
alter table batchledger.batch_range
    drop constraint batch_range_balanced,
    add constraint batch_range_balanced
        check ((not published_live and isempty(held)) or (unexplained is not null and unexplained = 0)),
    drop constraint batch_range_disjoint,
    add constraint batch_range_disjoint exclude using gist
        (pipeline with =, topic with =, partition with =, epoch with =, offsets with &&) where (published_live),
    add constraint batch_range_held_once exclude using gist
        (pipeline with =, topic with =, partition with =, held with &&) where (not isempty(held));
comment on column batchledger.batch_range.held is 'The offsets whose rows are this batch''s: all of them when it is published, less what later batches have replaced (I8).';
comment on column batchledger.batch_range.quarantine_dropped is 'How many of the quarantined records a person has removed for good; see decision.';

create table batchledger.replacement (
    batch_id           bigint not null references batchledger.batch,
    replaced_batch_id  bigint not null references batchledger.batch,
    topic              text not null,
    partition          int not null,
    offsets            int8range not null check (not isempty(offsets)),
    rows               bigint not null,
    quarantined        bigint not null,
    duplicates         bigint not null,
    primary key (batch_id, replaced_batch_id, topic, partition, offsets)
);
create index replacement_of_range on batchledger.replacement (replaced_batch_id, topic, partition);
comment on table batchledger.replacement is 'Which offsets a batch took over from which other one, and how much of the other it removed; rows counts offsets, so repeated rows count once.';

create index quarantine_of_batch on batchledger.quarantine (batch_id);
create index deleted_key_by_offset on batchledger.deleted_key (pipeline, topic, partition, "offset");

alter table batchledger.duplicate
    add column key_hash  bytea;
comment on column batchledger.duplicate.key_hash is 'As in message_key. Null: unknown, or its first record is in the target no more; published again, the record is judged anew.';

alter table batchledger.decision
    alter column batch_id drop not null,
    add column pipeline  text references batchledger.pipeline,
    add column before    jsonb,
    add column after     jsonb,
    drop constraint decision_kind_check;
update batchledger.decision d set pipeline = b.pipeline from batchledger.batch b where b.batch_id = d.batch_id;
alter table batchledger.decision
    alter column pipeline set not null;
create index decision_by_pipeline on batchledger.decision (pipeline, decision_id desc);
comment on table batchledger.decision is 'What a person decided about a batch or a whole pipeline, with what it changed. An accepted loss is a batch of its own, so its ranges are in batch_range.';

alter table batchledger.pipeline
    add column pause_id  bigint references batchledger.decision;
comment on column batchledger.pipeline.pause_id is 'The decision that has paused the pipeline; null: it runs. Nothing new is planned while it is paused.';
