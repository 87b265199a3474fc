-- What audits of the ledger found, and the indexes that let housekeeping look at what is old only.

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
comment on table batchledger.audit_result is 'One line per check of an audit; all lines of one audit have the same audited_at. Without a foreign key: a pipeline may be audited before it first plans.';

create index batch_by_publication on batchledger.batch (pipeline, published_at desc) where state = 'published';
create index quarantine_by_age on batchledger.quarantine (pipeline, quarantined_at);
create index check_result_with_validation on batchledger.check_result (batch_id) where validation is not null;
