-- How many records of each kind of error a pipeline has in quarantine. The database keeps these numbers itself, with
-- every change of the table: a page that is looked at every few seconds cannot count millions of records, nor can each
-- run.

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

insert into batchledger.quarantine_kind (pipeline, error_digest, error, records)
select pipeline, sha256(convert_to(error, 'UTF8')), error, count(*)
from batchledger.quarantine
group by pipeline, error;
