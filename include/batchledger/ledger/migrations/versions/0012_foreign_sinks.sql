-- A sink outside of this database commits by itself, before the ledger does. The batch is 'committing' from the
-- announcement of that commit until its outcome is known, and a run that goes on asks the sink first.

alter table batchledger.batch
    drop constraint batch_state_check,
    add constraint batch_state_check
        check (state in ('planned', 'staged', 'audited', 'committing', 'published', 'blocked', 'discarded'));

create unique index batch_one_committing on batchledger.batch (pipeline) where state = 'committing';
comment on index batchledger.batch_one_committing is
    'What a second batch would change, such as message keys, must be as it was when the sink is asked about the first.';

-- A topic and an Iceberg table have ids of other kinds.
alter table batchledger.pipeline alter column target_oid type text using target_oid::text;
alter table batchledger.pipeline rename column target_oid to target_identity;
comment on column batchledger.pipeline.target_identity is
    'What tells the target that earlier batches were published to from another one of the same name, which is refused: the oid of a table, the id of a topic.';
