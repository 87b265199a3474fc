-- Who is at work on a batch, so that others leave it alone. Nothing that is published depends on it.

-- No foreign key: its lock on the batch would let a sign of life wait for a publication.
create table batchledger.presence (
    batch_id      bigint primary key,
    run           text not null,
    worker        text not null,
    holder        bigint not null,
    since         timestamptz not null default clock_timestamp(),
    seen_at       timestamptz not null default clock_timestamp(),
    is_handed_on  boolean not null default false
);
comment on table batchledger.presence is
    'Who is at work on a batch that is not over. A hint for those who would start another attempt, never a condition of safety.';
comment on column batchledger.presence.worker is 'The user and the machine of its process.';
comment on column batchledger.presence.holder is
    'The number whose session advisory lock the process holds as long as it lives; another one for each process.';
comment on column batchledger.presence.seen_at is 'Its last sign of life, or the end of its last step.';
comment on column batchledger.presence.is_handed_on is 'Its last step ended well, and the next one has not begun.';
