-- The ledger keeps what a dry run has found, so that people can read it without a log.

alter table batchledger.batch
    add column dry_run  jsonb,
    add constraint batch_dry_run_found_at_its_end check (dry_run is null or (is_dry_run and state = 'discarded'));
comment on column batchledger.batch.dry_run is
    'What the dry run has found: whose rows would be replaced, how they would differ, what speaks against publishing; never a value of a record. Null: it did not come to its end, ran before this column was there, or is no dry run.';

-- Which batch a run has worked on, however long ago.
create index batch_by_planner on batchledger.batch (pipeline, planned_by);
create index attempt_by_run on batchledger.attempt (run);
