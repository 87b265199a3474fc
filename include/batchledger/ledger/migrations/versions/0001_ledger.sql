-- The control table of Batchledger. Correctness that the database itself can refuse to lose is written here:
-- I1/I3 by compare-and-swap on position.next_offset, I2 by batch_range_disjoint, I7 by batch_range_balanced,
-- one open live batch per pipeline by batch_one_open_live.

create extension if not exists btree_gist;

create schema if not exists batchledger_staging;

create table batchledger.pipeline (
    name        text primary key,
    target      text,
    target_oid  oid,
    created_at  timestamptz not null default now()
);
comment on column batchledger.pipeline.target_oid is 'The table that earlier batches were published to; another one of the same name is refused.';

create unique index pipeline_owns_target on batchledger.pipeline (target_oid);

create table batchledger.position (
    pipeline       text not null references batchledger.pipeline,
    topic          text not null,
    partition      int not null,
    origin_offset  bigint not null check (origin_offset >= 0),
    next_offset    bigint not null,
    cluster_id     text not null,
    topic_id       text not null,
    updated_at     timestamptz not null default now(),
    primary key (pipeline, topic, partition),
    check (next_offset >= origin_offset)
);
comment on column batchledger.position.next_offset is 'The next offset to read. Zero is a real offset; there is no sentinel.';

create table batchledger.batch (
    batch_id          bigint generated always as identity primary key,
    pipeline          text not null references batchledger.pipeline,
    lane              text not null check (lane in ('live', 'replay')),
    state             text not null default 'planned'
                      check (state in ('planned', 'staged', 'audited', 'published', 'blocked', 'discarded')),
    attempt           int not null default 0,
    lag_left_records  bigint not null,
    reported_rows     bigint,
    published_rows    bigint,
    planned_by        text not null,
    planned_at        timestamptz not null default now(),
    published_at      timestamptz
);
create unique index batch_one_open_live on batchledger.batch (pipeline)
    where lane = 'live' and state not in ('published', 'discarded');
create index batch_by_pipeline on batchledger.batch (pipeline, batch_id desc);
create index batch_last_published on batchledger.batch (pipeline, published_at) where lane = 'live';

create table batchledger.attempt (
    batch_id    bigint not null references batchledger.batch,
    number      int not null check (number > 0),
    run         text not null,
    opened_at   timestamptz not null default clock_timestamp(),
    staged_at   timestamptz,
    audited_at  timestamptz,
    ended_at    timestamptz,
    outcome     text check (outcome in ('published', 'blocked', 'fenced')),
    primary key (batch_id, number)
);
comment on table batchledger.attempt is 'One execution of a batch; its number is the fencing token of every later write.';

create table batchledger.batch_range (
    batch_id        bigint not null references batchledger.batch,
    pipeline        text not null,
    topic           text not null,
    partition       int not null,
    offsets         int8range not null check (not isempty(offsets)),
    published_live  boolean not null default false,
    accepted        bigint,
    duplicates      bigint,
    quarantined     bigint,
    tombstones      bigint,
    filtered        bigint,
    holes           bigint,
    accepted_loss   bigint,
    unexplained     bigint generated always as (
        upper(offsets) - lower(offsets)
        - accepted - duplicates - quarantined - tombstones - filtered - holes - accepted_loss) stored,
    primary key (batch_id, topic, partition, offsets),
    constraint batch_range_balanced check (not published_live or (unexplained is not null and unexplained = 0)),
    constraint batch_range_disjoint exclude using gist (pipeline with =, topic with =, partition with =, offsets with &&)
        where (published_live)
);

create table batchledger.check_result (
    batch_id   bigint not null references batchledger.batch,
    attempt    int not null,
    name       text not null,
    passed     boolean not null,
    detail     text not null,
    observed   jsonb not null,
    judged_at  timestamptz not null default now(),
    primary key (batch_id, attempt, name)
);

create table batchledger.quarantine (
    pipeline        text not null references batchledger.pipeline,
    topic           text not null,
    partition       int not null,
    "offset"        bigint not null,
    "timestamp"     timestamptz,
    key             bytea,
    value           bytea,
    headers         json,
    error           text not null,
    batch_id        bigint not null references batchledger.batch,
    quarantined_at  timestamptz not null default now(),
    primary key (pipeline, topic, partition, "offset")
);
comment on column batchledger.quarantine.headers is 'A list of {key, value}; value is base64, because headers are bytes.';
