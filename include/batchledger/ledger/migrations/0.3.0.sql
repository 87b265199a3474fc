-- From version 0.2.0 to 0.3.0. Until 0.3.0 is released, each change of the ledger is added to this file, and the
-- migration gets the next number (RELEASES in ledger/schema.py).


-- The schemas that records were decoded with, and those that they were written with, as their registry had them when they
-- were first needed. A replay decodes the same records by the same schemas, also without the registry.

create table batchledger.record_schema (
    schema_id       int generated always as identity primary key,
    pipeline        text not null,
    fingerprint     text not null,
    definition      text not null,
    first_used_at   timestamptz not null default clock_timestamp(),
    last_used_at    timestamptz not null default clock_timestamp(),
    first_batch_id  bigint not null,
    last_batch_id   bigint not null,
    unique (pipeline, fingerprint)
);
comment on table batchledger.record_schema is
    'A schema that a pipeline has decoded records with; the fingerprint is the SHA-256 of its definition.';

create table batchledger.added_column (
    number    int generated always as identity primary key,
    pipeline  text not null,
    name      text not null,
    batch_id  bigint not null,
    added_at  timestamptz not null default clock_timestamp(),
    unique (pipeline, name)
);
comment on table batchledger.added_column is
    'A column for a field that records have brought, with unknown_fields: add; batch_id is the first that had it.';

create table batchledger.writer_schema (
    registry       text not null,
    id             text not null,
    fingerprint    text not null,
    definition     text not null,
    first_used_at  timestamptz not null default clock_timestamp(),
    primary key (registry, id)
);
comment on table batchledger.writer_schema is
    'A schema that records were written with, or a reader''s; registry is the name of its connection, the fingerprint the SHA-256 of the definition.';
comment on column batchledger.writer_schema.id is
    'The number that the registry gives the schema, its GUID, or subject and version of a reader''s schema. It means one schema for ever.';

create table batchledger.attempt_writer_schema (
    batch_id  bigint not null,
    number    int not null,
    registry  text not null,
    id        text not null,
    primary key (batch_id, number, registry, id),
    foreign key (batch_id, number) references batchledger.attempt,
    foreign key (registry, id) references batchledger.writer_schema
);
create index on batchledger.attempt_writer_schema (registry, id, batch_id);
comment on table batchledger.attempt_writer_schema is
    'The schemas that records of an attempt have named, and the reader''s.';

-- An attempt that version 0.2.0 has staged names no schema, and its evidence no field that is not declared.
alter table batchledger.attempt
    add column schema_id  int references batchledger.record_schema,
    add column quoted     text,
    add column quoted_at  timestamptz,
    add column row_rules  text,
    add constraint attempt_quoted_has_time check ((quoted is null) = (quoted_at is null));
create index attempt_quoted on batchledger.attempt (quoted_at) where quoted is not null;
comment on column batchledger.attempt.quoted is
    'The whole text of an error, which may quote values of records. Only people who may trigger the DAG see it. Housekeeping removes it.';
comment on column batchledger.attempt.row_rules is
    'The SHA-256 of what makes rows of records in the pipeline file: columns, source.protect, the transform. Null until the attempt is staged, or if an older version has staged it.';

do $$
declare
    evidence regclass;
begin
    for evidence in
        select c.oid::regclass
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'batchledger_staging' and c.relkind = 'r' and c.relname ~ '^b[0-9]+_a[0-9]+_visible$'
    loop
        execute format(
            'alter table %s add column field text, add column records bigint, add column first_offset bigint', evidence);
    end loop;
end
$$;


-- What each pipeline has published in all, so that metrics need not read its history: a year of batches has millions of
-- ranges. Each transaction that publishes or discards a batch adds to it.

create table batchledger.pipeline_total (
    pipeline         text primary key references batchledger.pipeline,
    published        bigint not null default 0,
    discarded        bigint not null default 0,
    accepted         bigint not null default 0,
    duplicates       bigint not null default 0,
    quarantined      bigint not null default 0,
    tombstones       bigint not null default 0,
    filtered         bigint not null default 0,
    holes            bigint not null default 0,
    accepted_loss    bigint not null default 0,
    unexplained      bigint not null default 0,
    timed            bigint not null default 0,
    stage_seconds    double precision not null default 0,
    audit_seconds    double precision not null default 0,
    publish_seconds  double precision not null default 0
) with (fillfactor = 50);
comment on table batchledger.pipeline_total is
    'The sums of all batches of a pipeline that were published or discarded, without dry runs. A number only grows: what a replay or a rewind takes over stays counted.';
comment on column batchledger.pipeline_total.unexplained is
    'Offsets of published ranges that no line of the balance accounts for; batch_range_balanced keeps it at 0.';
comment on column batchledger.pipeline_total.timed is
    'How many published batches the seconds are of: without those that a person has given up or accepted.';

insert into batchledger.pipeline_total (
    pipeline, published, discarded, accepted, duplicates, quarantined, tombstones, filtered, holes, accepted_loss,
    unexplained, timed, stage_seconds, audit_seconds, publish_seconds)
select b.pipeline, b.published, b.discarded, coalesce(r.accepted, 0), coalesce(r.duplicates, 0),
    coalesce(r.quarantined, 0), coalesce(r.tombstones, 0), coalesce(r.filtered, 0), coalesce(r.holes, 0),
    coalesce(r.accepted_loss, 0), coalesce(r.unexplained, 0), coalesce(s.timed, 0), coalesce(s.stage_seconds, 0),
    coalesce(s.audit_seconds, 0), coalesce(s.publish_seconds, 0)
from (
    select pipeline, count(*) filter (where state = 'published') as published,
        count(*) filter (where state = 'discarded') as discarded
    from batchledger.batch
    where state in ('published', 'discarded') and not is_dry_run
    group by pipeline) b
left join (
    select b.pipeline, sum(r.accepted) as accepted, sum(r.duplicates) as duplicates, sum(r.quarantined) as quarantined,
        sum(r.tombstones) as tombstones, sum(r.filtered) as filtered, sum(r.holes) as holes,
        sum(r.accepted_loss) as accepted_loss, sum(abs(r.unexplained)) as unexplained
    from batchledger.batch b
    join batchledger.batch_range r using (batch_id)
    where b.state = 'published'
    group by b.pipeline) r using (pipeline)
left join (
    select b.pipeline, count(*) as timed,
        sum(greatest(0, extract(epoch from a.staged_at - a.opened_at))) as stage_seconds,
        sum(greatest(0, extract(epoch from a.audited_at - a.staged_at))) as audit_seconds,
        sum(greatest(0, extract(epoch from b.published_at - a.audited_at))) as publish_seconds
    from batchledger.batch b
    join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
    where b.state = 'published' and a.staged_at is not null and a.audited_at is not null
        and not exists (select from batchledger.decision d where d.batch_id = b.batch_id and d.kind = 'accept')
    group by b.pipeline) s using (pipeline);


-- Decisions are only added. Each says who decided, as the operating system and the database know it, and carries a hash of
-- itself and of the decision before it, so that a change shows. Some need two people: a request is a decision of its own,
-- and the decision that carries it out names it.

alter table batchledger.pipeline
    add column decision_count      bigint not null default 0,
    add column secret_fingerprint  bytea,
    add column former_names        text[] not null default '{}';
comment on column batchledger.pipeline.decision_count is
    'How many decisions were ever recorded about the pipeline. A trigger counts, and its update is the lock under which a decision gets its number.';
comment on column batchledger.pipeline.former_names is
    'What the pipeline was called before people renamed it; see the command rename. A trigger lets no new pipeline begin under such a name.';
comment on column batchledger.pipeline.secret_fingerprint is
    'Tells the secret that columns of the pipeline are hashed with from another one: HMAC-SHA-256, by this secret, of a constant. Null if none was hashed yet.';

alter table batchledger.decision
    add column uid              bigint,
    add column host             text,
    add column database_role    text,
    add column chain_number     bigint,
    add column chain_hash       bytea,
    add column request_id       bigint references batchledger.decision,
    add column requested_by     text,
    add column requested_order  jsonb,
    add column recorded_as      text;
comment on column batchledger.decision.decided_by is
    'The name in Airflow, or the name of the operating system''s user on the command line; ana@host before version 0.3.0.';
comment on column batchledger.decision.uid is
    'The number of the operating system''s user on the command line; null for Airflow and before version 0.3.0.';
comment on column batchledger.decision.host is 'The machine of the command line.';
comment on column batchledger.decision.database_role is
    'The role that was logged in to PostgreSQL, written by a trigger: no statement chooses it. Null before version 0.3.0.';
comment on column batchledger.decision.chain_number is
    'The number of the decision among the decisions of its pipeline, from 1. Decisions from before version 0.3.0 are numbered by their ids.';
comment on column batchledger.decision.chain_hash is
    'The SHA-256 of chain_hash of the decision before it in its pipeline, and of all other columns as a JSON array in UTF-8; see the function hash_decision.';
comment on column batchledger.decision.request_id is
    'The request that the decision carries out or withdraws; null if one person decided alone.';
comment on column batchledger.decision.requested_by is
    'Who made that request. A trigger writes it: no statement chooses it.';
comment on column batchledger.decision.recorded_as is
    'The name of the pipeline when the decision was recorded, of which its hash is; null if the pipeline still has it.';
comment on column batchledger.decision.requested_order is
    'What a request asks for; before and after are the effect that was shown. Null for every other decision.';

-- Seconds since 1970 for the moment: its text would depend on the time zone of the session.
-- A decision of one person has the hash that it had before there were requests.
create function batchledger.hash_decision(previous bytea, d batchledger.decision) returns bytea
language sql stable set search_path = pg_catalog, pg_temp as $$
    select sha256(previous || convert_to((jsonb_build_array(
        coalesce(d.recorded_as, d.pipeline), d.chain_number, d.decision_id, d.batch_id, d.kind, d.decided_by, d.reason,
        extract(epoch from d.decided_at), d.before, d.after, d.uid, d.host, d.database_role)
        || case when d.request_id is null and d.requested_order is null then '[]'::jsonb
            else jsonb_build_array(d.request_id, d.requested_by, d.requested_order) end)::text, 'UTF8'))
$$;

do $$
declare
    one batchledger.decision;
    of_pipeline text;
    last_number bigint;
    last_hash bytea;
begin
    for one in select * from batchledger.decision order by pipeline, decision_id loop
        if one.pipeline is distinct from of_pipeline then
            of_pipeline := one.pipeline;
            last_number := 0;
            last_hash := '';
        end if;
        last_number := last_number + 1;
        one.chain_number := last_number;
        last_hash := batchledger.hash_decision(last_hash, one);
        update batchledger.decision set chain_number = last_number, chain_hash = last_hash
        where decision_id = one.decision_id;
    end loop;
end $$;
update batchledger.pipeline p
set decision_count = (select count(*) from batchledger.decision d where d.pipeline = p.name);

alter table batchledger.decision
    alter column chain_number set not null,
    alter column chain_hash set not null,
    add constraint decision_chain unique (pipeline, chain_number),
    add constraint decision_asks_for_an_order check (
        case when kind = 'request'
            then requested_order ->> 'kind' in ('accept', 'accept-loss', 'skip', 'rewind', 'quarantine-drop', 'erase')
                and jsonb_typeof(before) = 'object' and jsonb_typeof(after) = 'object'
            else requested_order is null
        end is true),
    add constraint decision_names_who_asked check ((request_id is null) = (requested_by is null)),
    add constraint decision_of_two_people check (kind = 'withdraw' or requested_by is null or requested_by <> decided_by);
-- A request is carried out or withdrawn, once.
create unique index decision_by_request on batchledger.decision (request_id);

-- The program says the same earlier, and in words (model/requests.py).
create function batchledger.confirm_request() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    asked batchledger.decision;
    is_another boolean;
begin
    new.requested_by := null;
    -- A statement may date a decision back. A request from the future would be valid for longer.
    if new.kind = 'request' then
        new.decided_at := least(new.decided_at, clock_timestamp());
    end if;
    if new.request_id is null then
        return new;
    end if;
    select d.* into asked from batchledger.decision d
    where d.decision_id = new.request_id and d.pipeline = new.pipeline and d.kind = 'request';
    if not found then
        raise exception 'there is no such request' using errcode = 'check_violation';
    end if;
    new.requested_by := asked.decided_by;
    if new.kind = 'withdraw' then
        return new;
    end if;
    -- Airflow's logins count if Airflow's own login has recorded both. Users of command lines count if each has a login.
    if asked.uid is null and new.uid is null then
        is_another := asked.database_role = session_user::text;
    elsif asked.uid is not null and new.uid is not null then
        is_another := asked.database_role <> session_user::text
            and (asked.uid, asked.host) is distinct from (new.uid, new.host);
    else
        is_another := false;
    end if;
    if is_another is not true or asked.decided_by = new.decided_by then
        raise exception 'a second person has to confirm a request' using errcode = 'check_violation';
    end if;
    if clock_timestamp() >= asked.decided_at + interval '24 hours' then
        raise exception 'the request has expired' using errcode = 'check_violation';
    end if;
    if new.kind is distinct from asked.requested_order ->> 'kind'
        or (asked.batch_id is not null and new.batch_id is distinct from asked.batch_id)
        or new.before is distinct from asked.before or new.after is distinct from asked.after then
        raise exception 'the decision is not what the request has shown' using errcode = 'check_violation';
    end if;
    return new;
end $$;

create function batchledger.record_role() returns trigger language plpgsql as $$
begin
    new.database_role := session_user;
    return new;
end $$;

-- It runs with the rights of the ledger's owner: a role that may add a decision need not be able to write the count.
create function batchledger.seal_decision() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    update batchledger.pipeline set decision_count = decision_count + 1 where name = new.pipeline
    returning decision_count into new.chain_number;
    new.chain_hash := batchledger.hash_decision(
        coalesce((
            select d.chain_hash from batchledger.decision d
            where d.pipeline = new.pipeline and d.chain_number = new.chain_number - 1), ''),
        new);
    return new;
end $$;
-- Otherwise each login could attach it to a table of its own, and count decisions that there are not.
revoke execute on function batchledger.seal_decision() from public;

create function batchledger.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'rows of batchledger.% are only added', tg_table_name using errcode = 'insufficient_privilege';
end $$;

-- Triggers fire in the order of their names: decision_sealed hashes what the two before it write.
create trigger decision_confirmed before insert on batchledger.decision
    for each row execute function batchledger.confirm_request();
create trigger decision_role before insert on batchledger.decision
    for each row execute function batchledger.record_role();
create trigger decision_sealed before insert on batchledger.decision
    for each row execute function batchledger.seal_decision();
create trigger decision_kept before update or delete or truncate on batchledger.decision
    for each statement execute function batchledger.refuse_change();


-- A file that still has a former name must not begin a new history under it. After the insertion: before it, a
-- transaction that waits for a rename would look too early.
create function batchledger.refuse_former_name() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    present text;
begin
    select p.name into present from batchledger.pipeline p where new.name = any (p.former_names);
    if found then
        raise exception 'the pipeline has another name now' using
            errcode = 'unique_violation', constraint = 'pipeline_former_name', detail = present;
    end if;
    return null;
end $$;
revoke execute on function batchledger.refuse_former_name() from public;
create trigger pipeline_name_is_no_former_one after insert on batchledger.pipeline
    for each row execute function batchledger.refuse_former_name();


-- Who has looked at payloads.

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
create trigger payload_look_role before insert on batchledger.payload_look
    for each row execute function batchledger.record_role();
create trigger payload_look_kept before update or delete or truncate on batchledger.payload_look
    for each statement execute function batchledger.refuse_change();


-- Erasure: how many rows people have erased of each range, which keys stay erased if their records come again, and where
-- the erased records lie, whatever their rows look like by now. Keys may be hashed with a secret that is not in the
-- database; the ledger knows the secret by its fingerprint, and holds no key of producers' numbering in clear text.

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
    form       text not null default '',
    types      text[],
    primary key (pipeline, columns, key_hash, topic, partition)
);
create index erased_key_by_offset on batchledger.erased_key (pipeline, topic, partition, until);
comment on table batchledger.erased_key is
    'The keys whose rows were erased. A publication erases rows of these keys again if their offsets lie before until. key_hash is sha256 of salt and the JSON array of the key''s values, as texts; with a secret it is HMAC-SHA-256 of that, see key_secret.';
comment on column batchledger.erased_key.salt is 'Random bytes, the same for all keys of a pipeline: a row is hashed once.';
comment on column batchledger.erased_key.until is
    'How far any batch had read the partition. What lies there or behind was read after the erasure.';
comment on column batchledger.erased_key.form is
    'How rows held the values of these columns: which of them were hashed, by the secret of which fingerprint. Empty if they held all of them as records do.';
comment on column batchledger.erased_key.types is
    'The types of the columns when the key was erased, as PostgreSQL writes them. A whole number or a numeric is hashed by its value, without zeros at its end. Null if an older version has hashed the text of every value.';

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

alter table batchledger.deleted_key add column is_erased boolean not null default false;
comment on column batchledger.deleted_key.is_erased is
    'Whether an erased record is the newest of its key. It stays when its offsets are published again, and when the target is emptied.';

create table batchledger.key_secret (
    is_only      boolean primary key default true check (is_only),
    fingerprint  bytea not null,
    used_since   timestamptz not null default now(),
    used_by      text not null default session_user
);
comment on table batchledger.key_secret is
    'The fingerprint of the secret that keys are hashed with; see the command rekey. Without a row, they are hashed without a secret.';
comment on column batchledger.key_secret.fingerprint is
    'HMAC-SHA-256, by the secret, of a constant, as in pipeline.secret_fingerprint.';
comment on column batchledger.key_secret.used_by is
    'The login that hashed the keys with the secret: of the command rekey, or of migrate.';
-- Roles that were granted before read it, too: each transaction that hashes keys compares it.
grant select on batchledger.key_secret to public;

comment on table batchledger.message_key is
    'The first record of each message key. key_hash is sha256 of the JSON array of the key''s values, as PostgreSQL writes it; with a secret it is HMAC-SHA-256 of that, see key_secret.';
alter table batchledger.sequence drop column key;
comment on table batchledger.sequence is
    'What was seen of each producer''s own numbering. key_hash is made as in message_key, of the columns'' names and the key''s values.';

alter table batchledger.quarantine add column payload_kept boolean not null default true;
comment on column batchledger.quarantine.payload_kept is
    'False if the pipeline file protects columns: neither key, value nor headers of the record were written. Then all three are null.';


-- History that is older than history.keep is joined: the last of the batches answers for all of them.

alter table batchledger.batch
    add column joined_from bigint check (joined_from < batch_id),
    add constraint batch_spans_disjoint exclude using gist
        (pipeline with =, int8range(joined_from, batch_id, '[]') with &&) where (joined_from is not null);
comment on column batchledger.batch.joined_from is
    'The first of the batches that were joined into this one; null: it is one batch. Rows of the target keep the ids that they were written with: all ids of the pipeline from here to batch_id mean this batch.';
-- What refers to a batch is looked for when the batch goes.
create index incident_of_batch on batchledger.incident (batch_id) where batch_id is not null;
create index payload_look_of_batch on batchledger.payload_look (batch_id) where batch_id is not null;


-- A role that is named here sees and changes its pipelines only. Owner and superusers are not held by policies.

create table batchledger.pipeline_role (
    role        text not null,
    pipeline    text not null,
    granted_at  timestamptz not null default now(),
    primary key (role, pipeline)
);
comment on table batchledger.pipeline_role is
    'Which pipelines a role of PostgreSQL may see and change; see the command grant. A role without a row is held by its other grants alone.';

-- With the rights of the owner: a role need not be able to read the table. Null: the role is not named. The policies of
-- each connection ask once. A name without a role has no number, so it gives nothing. pg_roles, a view of two tables, took
-- twice as long.
create function batchledger.pipelines_of(who name) returns text[]
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select array_agg(g.pipeline)
    from batchledger.pipeline_role g
    where pg_has_role(who, to_regrole(quote_ident(g.role)), 'usage')
$$;

-- Ranges, batches and what they replaced are coordinates and counts, and every role may read them: a policy for reading
-- would keep the indexes of ranges from being used, because operators of ranges are not leakproof.
-- Each batch that a written row names has to be a batch of the row's pipeline: many statements find rows by the batch.
do $$
declare
    granted constant text := '(select batchledger.pipelines_of(current_user))';
    one record;
    own text;
    written text;
    named text;
begin
    for one in
        select *, array(
            select a.attname::text from pg_attribute a
            where a.attrelid = format('batchledger.%I', name)::regclass and not a.attisdropped
                and a.attname like '%batch\_id' and not (a.attname = 'batch_id' and 'batch' in (name, known_by))
            order by a.attnum) as batches
        from (values
            ('added_column', 'pipeline', true),
            ('attempt', 'batch', true),
            ('attempt_writer_schema', 'batch', true),
            ('audit_result', 'pipeline', true),
            ('batch', 'pipeline', false),
            ('batch_range', 'pipeline', false),
            ('check_result', 'batch', true),
            ('decision', 'pipeline', true),
            ('deleted_key', 'pipeline', true),
            ('duplicate', 'pipeline', true),
            ('incident', 'pipeline', true),
            ('key_type', 'pipeline', true),
            ('message_key', 'pipeline', true),
            ('notification', 'incident', true),
            ('payload_look', 'pipeline', true),
            ('pipeline', 'name', false),
            ('pipeline_total', 'pipeline', true),
            ('position', 'pipeline', true),
            ('presence', 'batch', true),
            ('quarantine', 'pipeline', true),
            ('quarantine_kind', 'pipeline', true),
            ('record_schema', 'pipeline', true),
            ('replacement', 'batch', false),
            ('sequence', 'pipeline', true)
        ) as listed (name, known_by, is_closed)
    loop
        own := granted || ' is null or ' || format(
            case one.known_by
                when 'batch' then
                    'exists (select from batchledger.batch b where b.batch_id = %1$I.batch_id and b.pipeline = any (%2$s::text[]))'
                when 'incident' then
                    'exists (select from batchledger.incident i where i.incident_id = %1$I.incident_id)'
                else '%3$I = any (%2$s::text[])'
            end, one.name, granted, one.known_by);
        written := own;
        foreach named in array one.batches loop
            written := written || format(
                ' and (%1$I.%2$I is null or exists ('
                'select from batchledger.batch b where b.batch_id = %1$I.%2$I and b.pipeline = %3$s))',
                one.name, named,
                case one.known_by when 'batch' then format('any (%s::text[])', granted) else one.name || '.pipeline' end);
        end loop;
        execute format('alter table batchledger.%I enable row level security', one.name);
        if one.is_closed then
            execute format('create policy own_pipelines on batchledger.%I using (%s) with check (%s)',
                one.name, own, written);
        else
            execute format('create policy read_all on batchledger.%I for select using (true)', one.name);
            execute format('create policy add_own on batchledger.%I for insert with check (%s)', one.name, written);
            execute format('create policy change_own on batchledger.%I for update using (%s) with check (%s)',
                one.name, own, written);
            execute format('create policy remove_own on batchledger.%I for delete using (%s)', one.name, own);
        end if;
    end loop;
end $$;
-- What was erased has no batch.
alter table batchledger.erased_key enable row level security;
create policy own_pipelines on batchledger.erased_key using (
    (select batchledger.pipelines_of(current_user)) is null
    or pipeline = any ((select batchledger.pipelines_of(current_user))::text[]));
alter table batchledger.erased_offset enable row level security;
create policy own_pipelines on batchledger.erased_offset using (
    (select batchledger.pipelines_of(current_user)) is null
    or pipeline = any ((select batchledger.pipelines_of(current_user))::text[]));

-- A right to insert into a whole table is also the right to choose its ids. Roles that were granted before keep the
-- right to insert into the columns that runs write.
do $$
declare
    one record;
    who text;
begin
    for one in
        select format('batchledger.%I', listed.name) as table, listed.written, array(
            select distinct a.grantee from pg_class c, aclexplode(c.relacl) a
            where c.oid = format('batchledger.%I', listed.name)::regclass
                and a.privilege_type = 'INSERT' and a.grantee <> c.relowner) as grantees
        from (values
            ('added_column', 'pipeline, name, batch_id'),
            ('batch', 'pipeline, lane, state, lag_left_records, planned_by, delivery, request_key, origin, is_dry_run, '
                'published_rows, published_at'),
            ('decision', 'pipeline, batch_id, kind, decided_by, reason, before, after, uid, host, request_id, '
                'requested_order'),
            ('incident', 'pipeline, kind, subject, severity, title, lines, command, batch_id, run, opened_at, seen_at'),
            ('notification', 'incident_id, channel, event, next_try_at'),
            ('payload_look', 'pipeline, batch_id, records, ranges, errors, looked_by, uid, host'),
            ('record_schema', 'pipeline, fingerprint, definition, first_batch_id, last_batch_id')
        ) as listed (name, written)
    loop
        for who in select case g when 0 then 'public' else quote_ident(pg_get_userbyid(g)) end from unnest(one.grantees) g loop
            -- Without "cascade" a role that has passed its right on would stop the migration.
            execute format('revoke insert on %s from %s cascade', one.table, who);
            execute format('grant insert (%s) on %s to %s', one.written, one.table, who);
        end loop;
    end loop;
end $$;


-- Words that named migrations.

comment on column batchledger.batch_range.holes is
    'aborted + markers + compacted; null classes are of the first checkouts before version 0.2.0.';
comment on column batchledger.batch_range.timestamps is
    'From the smallest timestamp of the records to the largest, in milliseconds of Kafka; of rows, duplicates and quarantined records. Empty: none has one. Null: not noted, as by checkouts before version 0.2.0.';
