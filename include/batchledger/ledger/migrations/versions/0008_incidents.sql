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
create index batch_last_replayed on batchledger.batch (pipeline, published_at) where lane = 'replay';
create index incident_by_pipeline on batchledger.incident (pipeline, incident_id desc);
comment on table batchledger.incident is 'Something that people are to know, from the first look that found it to the last. Holds no value of a record and no secret.';
comment on column batchledger.incident.pipeline is 'Also of a pipeline that the ledger does not know yet, because it could never be looked at.';
comment on column batchledger.incident.ending is 'How it ended, in a few words; empty while it lasts, and where that is not known.';
comment on column batchledger.incident.seen_at is 'When the last look that found it began.';

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
create index notification_unsent on batchledger.notification (channel, notification_id) where sent_at is null and given_up_at is null;
create index notification_sent on batchledger.notification (channel, sent_at) where sent_at is not null;
comment on table batchledger.notification is 'An outbox: stored with the incident, sent afterwards, tried again until it is delivered.';
comment on column batchledger.notification.given_up_at is 'When it was refused for so long, by a channel that takes others, that it is not tried any more.';
comment on column batchledger.notification.channel is 'The id of an Airflow connection.';
