-- The ledger of version 0.2.0. Correctness that the database itself can refuse to lose is written here:
-- I1 and I3 by compare-and-swap on position.next_offset, I2 by batch_range_disjoint, I7 by batch_range_balanced, I8 by
-- batch_range_held_once, one open live batch for each pipeline by batch_one_open_live.
-- A released migration is never edited. Columns stand in the order that ledgers of 0.2.0 have.

create extension if not exists btree_gist;

create schema if not exists batchledger_staging;


-- Pipelines, and how far they have read.

create table batchledger.pipeline (
    name             text primary key,
    target           text,
    target_identity  text,
    created_at       timestamptz not null default now(),
    epoch            int not null default 0,
    pause_id         bigint,
    ledger_mark      text
);
create unique index pipeline_owns_target on batchledger.pipeline (target_identity);
comment on column batchledger.pipeline.target_identity is
    'What tells the target that earlier batches were published to from another one of the same name, which is refused: cluster, database and oid of a table, cluster and id of a topic, uuid of an Iceberg table.';
comment on column batchledger.pipeline.epoch is
    'How often the pipeline was rewound; the live ranges of one epoch never overlap (I2).';
comment on column batchledger.pipeline.pause_id is
    'The decision that has paused the pipeline; null: it runs. Nothing new is planned while it is paused.';
comment on column batchledger.pipeline.ledger_mark is
    'What the ledger was when the table of the pipeline was last looked through for rows that no batch has written; after a restore it is another one.';

create table batchledger.position (
    pipeline         text not null references batchledger.pipeline,
    topic            text not null,
    partition        int not null,
    origin_offset    bigint not null check (origin_offset >= 0),
    next_offset      bigint not null,
    cluster_id       text not null,
    topic_id         text not null,
    updated_at       timestamptz not null default now(),
    held_back_at     bigint,
    held_back_since  timestamptz,
    rewound_to       bigint,
    primary key (pipeline, topic, partition),
    check (next_offset >= origin_offset),
    constraint position_rewound_within check (rewound_to between origin_offset and next_offset)
);
comment on column batchledger.position.next_offset is
    'The next offset to read. Zero is a real offset; there is no sentinel.';
comment on column batchledger.position.held_back_at is
    'The last stable offset at which plans have seen an open transaction hold records back, since held_back_since.';
comment on column batchledger.position.rewound_to is
    'Where the live batches of this epoch begin; null: at the origin.';


-- Batches, their attempts, and their ranges with what became of each offset.

create table batchledger.batch (
    batch_id           bigint generated always as identity primary key,
    pipeline           text not null references batchledger.pipeline,
    lane               text not null check (lane in ('live', 'replay')),
    state              text not null default 'planned' check (
        state in ('planned', 'staged', 'audited', 'committing', 'published', 'blocked', 'discarded')),
    attempt            int not null default 0,
    lag_left_records   bigint not null,
    reported_rows      bigint,
    published_rows     bigint,
    planned_by         text not null,
    planned_at         timestamptz not null default now(),
    published_at       timestamptz,
    delivery           text not null default 'exactly_once'
                       check (delivery in ('exactly_once', 'at_least_once', 'at_most_once')),
    rows_published_at  timestamptz,
    request_key        text,
    origin             text not null default 'kafka' check (origin in ('kafka', 'quarantine')),
    is_dry_run         boolean not null default false,
    dry_run            jsonb,
    announced_ends     bigint[],
    constraint batch_dry_run_stays_invisible check (not (is_dry_run and state = 'published')),
    constraint batch_dry_run_found_at_its_end check (dry_run is null or (is_dry_run and state = 'discarded'))
);
create unique index batch_one_open_live on batchledger.batch (pipeline)
    where lane = 'live' and state not in ('published', 'discarded');
create unique index batch_one_committing on batchledger.batch (pipeline) where state = 'committing';
comment on index batchledger.batch_one_committing is
    'What a second batch would change, such as message keys, must be as it was when the sink is asked about the first.';
create unique index batch_by_request on batchledger.batch (pipeline, request_key) where request_key is not null;
create index batch_open_replay on batchledger.batch (pipeline)
    where lane = 'replay' and state not in ('published', 'discarded');
create index batch_by_pipeline on batchledger.batch (pipeline, batch_id desc);
create index batch_last_published on batchledger.batch (pipeline, published_at) where lane = 'live';
create index batch_last_replayed on batchledger.batch (pipeline, published_at) where lane = 'replay';
create index batch_by_publication on batchledger.batch (pipeline, published_at desc) where state = 'published';
-- Which batch a run has worked on, however long ago.
create index batch_by_planner on batchledger.batch (pipeline, planned_by);
comment on column batchledger.batch.delivery is
    'The delivery mode of the pipeline when the batch was planned; every attempt keeps it.';
comment on column batchledger.batch.rows_published_at is
    'When rows were committed: with published_at, before it (at_least_once) or after it (at_most_once; null: lost).';
comment on column batchledger.batch.request_key is
    'Which request a replay belongs to, so that a plan step that is tried again finds its own batch.';
comment on column batchledger.batch.origin is
    'Where records are read: from Kafka, or the bytes that quarantine has kept of them.';
comment on column batchledger.batch.is_dry_run is
    'Staged and audited to be compared with the target, then discarded.';
comment on column batchledger.batch.dry_run is
    'What the dry run has found: whose rows would be replaced, how they would differ, what speaks against publishing; never a value of a record. Null: it did not come to its end, ran before this column was there, or is no dry run.';
comment on column batchledger.batch.announced_ends is
    'The high watermark of each partition of the output topic, in their order, when the commit of the batch was announced for the first time; null where the sink is no topic, and of batches that were announced before this column was there.';

create table batchledger.attempt (
    batch_id     bigint not null references batchledger.batch,
    number       int not null check (number > 0),
    run          text not null,
    opened_at    timestamptz not null default clock_timestamp(),
    staged_at    timestamptz,
    audited_at   timestamptz,
    ended_at     timestamptz,
    outcome      text check (outcome in ('published', 'blocked', 'fenced', 'failed', 'compared')),
    error        text,
    failed_step  text check (failed_step in ('stage', 'audit', 'publish')),
    primary key (batch_id, number),
    constraint attempt_error_has_step check ((error is null) = (failed_step is null))
);
create index attempt_by_run on batchledger.attempt (run);
comment on table batchledger.attempt is
    'One execution of a batch; its number is the fencing token of every later write.';
comment on column batchledger.attempt.failed_step is
    'The step that error is of. With outcome ''failed'' it has ended the attempt; without an outcome the step may be repeated, and its success takes the error away.';

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

-- The exclusion constraints compare what tells ranges apart first: nearly every entry of an index page has the pipeline
-- and the topic that is looked for.
create table batchledger.batch_range (
    batch_id            bigint not null references batchledger.batch,
    pipeline            text not null,
    topic               text not null,
    partition           int not null,
    offsets             int8range not null check (not isempty(offsets)),
    published_live      boolean not null default false,
    accepted            bigint,
    duplicates          bigint,
    quarantined         bigint,
    tombstones          bigint,
    filtered            bigint,
    holes               bigint,
    accepted_loss       bigint,
    unexplained         bigint generated always as (
        upper(offsets) - lower(offsets)
        - accepted - duplicates - quarantined - tombstones - filtered - holes - accepted_loss) stored,
    aborted             bigint,
    markers             bigint,
    compacted           bigint,
    epoch               int not null default 0,
    held                int8multirange not null default '{}',
    quarantine_dropped  bigint not null default 0,
    timestamps          int8range,
    untimed             bigint,
    primary key (batch_id, topic, partition, offsets),
    constraint batch_range_balanced
        check ((not published_live and isempty(held)) or (unexplained is not null and unexplained = 0)),
    constraint batch_range_disjoint exclude using gist
        (partition with =, offsets with &&, pipeline with =, topic with =, epoch with =) where (published_live),
    constraint batch_range_held_once exclude using gist
        (partition with =, held with &&, pipeline with =, topic with =) where (not isempty(held))
);
create index batch_range_by_time on batchledger.batch_range using gist (pipeline, timestamps) where (not isempty(held));
create index batch_range_untimed on batchledger.batch_range (pipeline) where untimed > 0;
comment on column batchledger.batch_range.held is
    'The offsets whose rows are this batch''s: all of them when it is published, less what later batches have replaced (I8).';
comment on column batchledger.batch_range.quarantine_dropped is
    'How many of the quarantined records a person has removed for good; see decision.';
comment on column batchledger.batch_range.untimed is 'How many of these records have no timestamp.';

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
comment on table batchledger.replacement is
    'Which offsets a batch took over from which other one, and how much of the other it removed; rows counts offsets, so repeated rows count once.';


-- What checks and audits of the ledger have found.

create table batchledger.check_result (
    batch_id    bigint not null references batchledger.batch,
    attempt     int not null,
    name        text not null,
    detail      text not null,
    observed    jsonb not null,
    judged_at   timestamptz not null default now(),
    outcome     text not null,
    severity    text not null default 'critical' check (severity in ('critical', 'warning', 'info')),
    suite       text not null default 'integrity' check (suite in ('integrity', 'pipeline')),
    validation  jsonb,
    passed      boolean not null generated always as (outcome = 'passed') stored,
    on_failure  text not null default 'block' check (on_failure in ('block', 'quarantine', 'publish')),
    primary key (batch_id, attempt, name),
    constraint check_result_outcome check (outcome in ('passed', 'failed', 'not_run', 'empty'))
);
create index check_result_with_validation on batchledger.check_result (batch_id) where validation is not null;
comment on column batchledger.check_result.outcome is
    'not_run: the check itself broke. empty: there was no row to judge.';
comment on column batchledger.check_result.validation is
    'The result of the expectation as Great Expectations serialises it, without values of records.';
comment on column batchledger.check_result.on_failure is
    'What a failure did to the batch. quarantine: the rows that failed were set aside, and the rest was published.';

create table batchledger.audit_result (
    pipeline    text not null,
    audited_at  timestamptz not null,
    name        text not null,
    outcome     text not null check (outcome in ('passed', 'failed', 'not_run', 'empty')),
    severity    text not null check (severity in ('critical', 'warning', 'info')),
    detail      text not null,
    observed    jsonb not null,
    validation  jsonb,
    primary key (pipeline, audited_at, name)
);
comment on table batchledger.audit_result is
    'One line per check of an audit; all lines of one audit have the same audited_at. Without a foreign key: a pipeline may be audited before it first plans.';


-- Records that are no row. The database counts them by their errors itself, with every change of quarantine: a page that
-- is looked at every few seconds cannot count millions of records, nor can each run.

-- "timestamp" is the moment of timestamp_ms, if it is one of the years 1970 to 9999.
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
    timestamp_ms    bigint,
    primary key (pipeline, topic, partition, "offset")
);
create index quarantine_of_batch on batchledger.quarantine (batch_id);
create index quarantine_by_age on batchledger.quarantine (pipeline, quarantined_at);
comment on column batchledger.quarantine.headers is
    'A list of {key, value}; value is base64, because headers are bytes.';
comment on column batchledger.quarantine.timestamp_ms is 'Milliseconds since 1970 as Kafka has them; -1 for none.';

create table batchledger.quarantine_kind (
    pipeline      text not null references batchledger.pipeline,
    error_digest  bytea not null,
    error         text not null,
    records       bigint not null check (records >= 0),
    primary key (pipeline, error_digest)
);
comment on table batchledger.quarantine_kind is
    'How many records in quarantine have the same error. Derived from quarantine by its triggers; nothing else writes it.';
comment on column batchledger.quarantine_kind.error_digest is
    'SHA-256 of the error, which may be longer than what an index can hold.';

create function batchledger.count_quarantined() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        insert into batchledger.quarantine_kind as kind (pipeline, error_digest, error, records)
        select pipeline, sha256(convert_to(error, 'UTF8')), error, count(*)
        from changed
        group by pipeline, error
        on conflict (pipeline, error_digest) do update set records = kind.records + excluded.records;
    else
        update batchledger.quarantine_kind kind
        set records = kind.records - gone.records
        from (select pipeline, error, count(*) as records from changed group by pipeline, error) gone
        where kind.pipeline = gone.pipeline and kind.error_digest = sha256(convert_to(gone.error, 'UTF8'));
        delete from batchledger.quarantine_kind
        where records = 0 and pipeline in (select pipeline from changed);
    end if;
    return null;
end $$;
create trigger quarantine_added after insert on batchledger.quarantine
    referencing new table as changed
    for each statement execute function batchledger.count_quarantined();
create trigger quarantine_removed after delete on batchledger.quarantine
    referencing old table as changed
    for each statement execute function batchledger.count_quarantined();


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
comment on table batchledger.message_key is
    'The first record of each message key. key_hash is sha256 of the JSON array of the key''s values.';
comment on column batchledger.message_key.remembered_until is
    'A batch planned at this moment or later does not know the key any more.';

create table batchledger.duplicate (
    batch_id         bigint not null,
    pipeline         text not null,
    topic            text not null,
    partition        int not null,
    "offset"         bigint not null,
    first_topic      text not null,
    first_partition  int not null,
    first_offset     bigint not null,
    key_hash         bytea,
    primary key (batch_id, topic, partition, "offset")
);
comment on table batchledger.duplicate is
    'The records that a batch dropped, each with the record that came first with the same message key.';
comment on column batchledger.duplicate.key_hash is
    'As in message_key. Null: unknown, or its first record is in the target no more; published again, the record is judged anew.';

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
create index deleted_key_by_offset on batchledger.deleted_key (pipeline, topic, partition, "offset");
comment on table batchledger.deleted_key is
    'The tombstone of each key that a target with mode upsert does not hold any more, so that an older record does not bring it back.';

create table batchledger.sequence (
    pipeline  text not null,
    key_hash  bytea not null,
    key       text not null,
    run       int not null,
    seen      int8multirange not null,
    batch_id  bigint not null,
    primary key (pipeline, key_hash)
);
comment on table batchledger.sequence is
    'What was seen of each producer''s own numbering. key_hash is sha256 of the JSON array of the columns'' names and the key''s values, key holds the values.';
comment on column batchledger.sequence.run is
    'How often the numbering has begun, the first time included; seen is of the newest one.';
comment on column batchledger.sequence.seen is
    'The numbers that were seen. Between them lie those that are known to be missing.';
comment on column batchledger.sequence.batch_id is 'The batch that has brought the newest numbers.';

create table batchledger.key_type (
    pipeline  text not null references batchledger.pipeline,
    rule      text not null,
    columns   text[] not null,
    types     text[] not null,
    primary key (pipeline, rule, columns),
    check (cardinality(columns) = cardinality(types))
);
comment on table batchledger.key_type is
    'How the keys that a pipeline remembers were written; of another type the same value has another hash, and would be forgotten.';


-- What people decide.

create table batchledger.decision (
    decision_id  bigint generated always as identity primary key,
    batch_id     bigint references batchledger.batch,
    kind         text not null,
    decided_by   text not null,
    reason       text not null check (reason <> ''),
    decided_at   timestamptz not null default now(),
    pipeline     text not null references batchledger.pipeline,
    before       jsonb,
    after        jsonb
);
alter table batchledger.pipeline add foreign key (pause_id) references batchledger.decision;
create index decision_by_batch on batchledger.decision (batch_id);
create index decision_by_pipeline on batchledger.decision (pipeline, decision_id desc);
comment on table batchledger.decision is
    'What a person decided about a batch or a whole pipeline, with what it changed. An accepted loss is a batch of its own, so its ranges are in batch_range.';


-- Incidents, and the outbox of messages that each channel still has to deliver.

create table batchledger.incident (
    incident_id  bigint generated always as identity primary key,
    pipeline     text not null,
    kind         text not null,
    subject      text not null,
    severity     text not null check (severity in ('critical', 'warning', 'info')),
    title        text not null,
    lines        text[] not null,
    command      text not null,
    batch_id     bigint references batchledger.batch,
    run          text,
    opened_at    timestamptz not null,
    seen_at      timestamptz not null,
    ended_at     timestamptz,
    ending       text not null default ''
);
create unique index incident_one_open on batchledger.incident (pipeline, kind, subject) where ended_at is null;
create index incident_by_pipeline on batchledger.incident (pipeline, incident_id desc);
comment on table batchledger.incident is
    'Something that people are to know, from the first look that found it to the last. Holds no value of a record and no secret.';
comment on column batchledger.incident.pipeline is
    'Also of a pipeline that the ledger does not know yet, because it could never be looked at.';
comment on column batchledger.incident.seen_at is 'When the last look that found it began.';
comment on column batchledger.incident.ending is
    'How it ended, in a few words; empty while it lasts, and where that is not known.';

create table batchledger.notification (
    notification_id  bigint generated always as identity primary key,
    incident_id      bigint not null references batchledger.incident on delete cascade,
    channel          text not null,
    event            text not null check (event in ('opened', 'ended')),
    next_try_at      timestamptz not null,
    tries            int not null default 0,
    sent_at          timestamptz,
    given_up_at      timestamptz,
    last_error       text,
    unique (incident_id, channel, event)
);
create index notification_unsent on batchledger.notification (channel, notification_id)
    where sent_at is null and given_up_at is null;
create index notification_sent on batchledger.notification (channel, sent_at) where sent_at is not null;
comment on table batchledger.notification is
    'An outbox: stored with the incident, sent afterwards, tried again until it is delivered.';
comment on column batchledger.notification.channel is 'The id of an Airflow connection.';
comment on column batchledger.notification.given_up_at is
    'When it was refused for so long, by a channel that takes others, that it is not tried any more.';
