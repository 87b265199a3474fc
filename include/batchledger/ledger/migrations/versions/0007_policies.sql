-- A critical check that failed need not keep its batch invisible.

alter table batchledger.check_result
    add column on_failure  text not null default 'block' check (on_failure in ('block', 'quarantine', 'publish'));
comment on column batchledger.check_result.on_failure is
    'What a failure did to the batch. quarantine: the rows that failed were set aside, and the rest was published.';
