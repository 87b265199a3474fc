-- What an error quotes may be a value of a record, so its whole text is kept apart from the error, and for some days only.

alter table batchledger.attempt
    add column quoted text,
    add column quoted_at timestamptz,
    add constraint attempt_quoted_has_time check ((quoted is null) = (quoted_at is null));
comment on column batchledger.attempt.quoted is
    'The whole text of an error, which may quote values of records. Only people who may trigger the DAG see it. Housekeeping removes it.';
create index attempt_quoted on batchledger.attempt (quoted_at) where quoted is not null;
