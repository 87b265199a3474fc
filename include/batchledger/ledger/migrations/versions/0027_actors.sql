-- Who decided, as the operating system and the database know it, and who has looked at payloads.

alter table batchledger.decision
    add column uid            bigint,
    add column host           text,
    add column database_role  text;
comment on column batchledger.decision.decided_by is
    'The name in Airflow, or the name of the operating system''s user on the command line; ana@host before migration 0027.';
comment on column batchledger.decision.uid is
    'The number of the operating system''s user on the command line; null for Airflow and before migration 0027.';
comment on column batchledger.decision.host is 'The machine of the command line.';
comment on column batchledger.decision.database_role is
    'The role that was logged in to PostgreSQL, written by a trigger: no statement chooses it. Null before migration 0027.';

create table batchledger.payload_look (
    look_id        bigint generated always as identity primary key,
    pipeline       text not null,
    batch_id       bigint references batchledger.batch,
    records        bigint not null check (records >= 0),
    ranges         text[] not null,
    errors         bigint not null check (errors >= 0),
    looked_by      text not null,
    uid            bigint,
    host           text,
    database_role  text not null,
    looked_at      timestamptz not null default now(),
    constraint payload_look_of_something check (records + errors > 0)
);
create index payload_look_by_pipeline on batchledger.payload_look (pipeline, look_id desc);
comment on table batchledger.payload_look is
    'Who was shown keys and values of records, or whole texts of errors, one row a request. Rows are only added: a trigger refuses every other change.';
comment on column batchledger.payload_look.batch_id is 'The batch that was shown; null if records of several were listed.';
comment on column batchledger.payload_look.errors is 'How many whole texts of errors were shown; they may quote values.';
comment on column batchledger.payload_look.ranges is 'For each partition, the range from the first record that was shown to the last.';
comment on column batchledger.payload_look.database_role is
    'The role that was logged in to PostgreSQL, written by a trigger: no statement chooses it.';

create function batchledger.record_role() returns trigger language plpgsql as $$
begin
    new.database_role := session_user;
    return new;
end $$;
create trigger decision_role before insert on batchledger.decision
    for each row execute function batchledger.record_role();
create trigger payload_look_role before insert on batchledger.payload_look
    for each row execute function batchledger.record_role();

create function batchledger.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'rows of batchledger.% are only added', tg_table_name using errcode = 'insufficient_privilege';
end $$;
create trigger payload_look_kept before update or delete or truncate on batchledger.payload_look
    for each statement execute function batchledger.refuse_change();
