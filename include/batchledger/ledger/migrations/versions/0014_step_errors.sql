-- An audit or a publication that fails leaves its error on its attempt, as a stage step does, and does not end it.

alter table batchledger.attempt add column failed_step text;
update batchledger.attempt set failed_step = 'stage' where error is not null;
alter table batchledger.attempt
    add constraint attempt_failed_step_check check (failed_step in ('stage', 'audit', 'publish')),
    add constraint attempt_error_has_step check ((error is null) = (failed_step is null));
comment on column batchledger.attempt.failed_step is
    'The step that error is of. With outcome ''failed'' it has ended the attempt; without an outcome the step may be repeated, and its success takes the error away.';
