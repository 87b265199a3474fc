-- Decisions are only added. Each carries a hash of itself and of the decision before it, so that a change shows.

alter table batchledger.pipeline add column decision_count bigint not null default 0;
comment on column batchledger.pipeline.decision_count is
    'How many decisions were ever recorded about the pipeline. A trigger counts, and its update is the lock under which a decision gets its number.';
alter table batchledger.decision
    add column chain_number  bigint,
    add column chain_hash    bytea;
comment on column batchledger.decision.chain_number is
    'The number of the decision among the decisions of its pipeline, from 1. Decisions from before migration 0028 are numbered by their ids.';
comment on column batchledger.decision.chain_hash is
    'The SHA-256 of chain_hash of the decision before it in its pipeline, and of all other columns as a JSON array in UTF-8; see the function hash_decision.';

-- Seconds since 1970 for the moment: its text would depend on the time zone of the session.
create function batchledger.hash_decision(previous bytea, d batchledger.decision) returns bytea
language sql stable set search_path = pg_catalog, pg_temp as $$
    select sha256(previous || convert_to(jsonb_build_array(
        d.pipeline, d.chain_number, d.decision_id, d.batch_id, d.kind, d.decided_by, d.reason,
        extract(epoch from d.decided_at), d.before, d.after, d.uid, d.host, d.database_role)::text, 'UTF8'))
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
    add constraint decision_chain unique (pipeline, chain_number);

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

-- Triggers fire in the order of their names: decision_role writes the role first.
create trigger decision_sealed before insert on batchledger.decision
    for each row execute function batchledger.seal_decision();
create trigger decision_kept before update or delete or truncate on batchledger.decision
    for each statement execute function batchledger.refuse_change();

-- A role that is named here sees and changes its pipelines only. Owner and superusers are not held by policies.

create table batchledger.pipeline_role (
    role        text not null,
    pipeline    text not null,
    granted_at  timestamptz not null default now(),
    primary key (role, pipeline)
);
comment on table batchledger.pipeline_role is
    'Which pipelines a role of PostgreSQL may see and change; see the command grant. A role without a row is held by its other grants alone.';

-- With the rights of the owner: a role need not be able to read the table. Null: the role is not named.
create function batchledger.pipelines_of(who name) returns text[]
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select array_agg(g.pipeline)
    from batchledger.pipeline_role g
    join pg_roles r on r.rolname = g.role
    where pg_has_role(who, r.oid, 'usage')
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
