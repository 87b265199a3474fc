-- Checks that a pipeline file asks for: how much they matter, and outcomes that are neither passed nor failed.

alter table batchledger.check_result
    add column outcome     text,
    add column severity    text not null default 'critical' check (severity in ('critical', 'warning', 'info')),
    add column suite       text not null default 'integrity' check (suite in ('integrity', 'pipeline')),
    add column validation  jsonb;
update batchledger.check_result set outcome = case when passed then 'passed' else 'failed' end;
alter table batchledger.check_result
    drop column passed,
    alter column outcome set not null,
    add constraint check_result_outcome check (outcome in ('passed', 'failed', 'not_run', 'empty')),
    add column passed  boolean not null generated always as (outcome = 'passed') stored;
comment on column batchledger.check_result.outcome is 'not_run: the check itself broke. empty: there was no row to judge.';
comment on column batchledger.check_result.validation is 'The result of the expectation as Great Expectations serialises it, without values of records.';
