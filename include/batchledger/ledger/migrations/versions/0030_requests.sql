-- Decisions that need two people: a request is a decision of its own, and the decision that carries it out names it.

alter table batchledger.decision
    add column request_id       bigint references batchledger.decision,
    add column requested_by     text,
    add column requested_order  jsonb;
comment on column batchledger.decision.request_id is
    'The request that the decision carries out or withdraws; null if one person decided alone.';
comment on column batchledger.decision.requested_by is
    'Who made that request. A trigger writes it: no statement chooses it.';
comment on column batchledger.decision.requested_order is
    'What a request asks for; before and after are the effect that was shown. Null for every other decision.';

alter table batchledger.decision
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
-- Triggers fire in the order of their names: it comes before decision_sealed, which hashes what it writes.
create trigger decision_confirmed before insert on batchledger.decision
    for each row execute function batchledger.confirm_request();

-- Decisions of one person keep the hash that they had.
create or replace function batchledger.hash_decision(previous bytea, d batchledger.decision) returns bytea
language sql stable set search_path = pg_catalog, pg_temp as $$
    select sha256(previous || convert_to((jsonb_build_array(
        d.pipeline, d.chain_number, d.decision_id, d.batch_id, d.kind, d.decided_by, d.reason,
        extract(epoch from d.decided_at), d.before, d.after, d.uid, d.host, d.database_role)
        || case when d.request_id is null and d.requested_order is null then '[]'::jsonb
            else jsonb_build_array(d.request_id, d.requested_by, d.requested_order) end)::text, 'UTF8'))
$$;
