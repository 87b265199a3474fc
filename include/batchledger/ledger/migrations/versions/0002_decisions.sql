-- Holes by class, decisions of people, and attempts that ended with an error.

alter table batchledger.batch_range
    add column aborted    bigint,
    add column markers    bigint,
    add column compacted  bigint;
comment on column batchledger.batch_range.holes is 'aborted + markers + compacted; null classes are of batches before this migration.';

alter table batchledger.position
    add column held_back_at     bigint,
    add column held_back_since  timestamptz;
comment on column batchledger.position.held_back_at is 'The last stable offset at which plans have seen an open transaction hold records back, since held_back_since.';

alter table batchledger.batch
    add column delivery text not null default 'exactly_once'
        check (delivery in ('exactly_once', 'at_least_once', 'at_most_once')),
    add column rows_published_at timestamptz;
comment on column batchledger.batch.delivery is 'The delivery mode of the pipeline when the batch was planned; every attempt keeps it.';
update batchledger.batch set rows_published_at = published_at where state = 'published';
comment on column batchledger.batch.rows_published_at is 'When rows were committed: with published_at, before it (at_least_once) or after it (at_most_once; null: lost).';

alter table batchledger.attempt
    add column error text,
    drop constraint attempt_outcome_check,
    add constraint attempt_outcome_check check (outcome in ('published', 'blocked', 'fenced', 'failed'));

create table batchledger.decision (
    decision_id  bigint generated always as identity primary key,
    batch_id     bigint not null references batchledger.batch,
    kind         text not null check (kind in ('accept-loss', 'discard')),
    decided_by   text not null,
    reason       text not null check (reason <> ''),
    decided_at   timestamptz not null default now()
);
create index decision_by_batch on batchledger.decision (batch_id);
comment on table batchledger.decision is 'What a person decided about a batch. An accepted loss is a batch of its own, so its ranges are in batch_range.';
