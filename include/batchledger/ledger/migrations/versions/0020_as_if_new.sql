-- Migration 0016 was edited shortly after its first use. A ledger that had run it before lacks a column, and a column of
-- a key. If the column was missing, it is null: the next batch looks its table through once.

alter table batchledger.pipeline add column if not exists ledger_mark text;
comment on column batchledger.pipeline.ledger_mark is
    'What the ledger was when the table of the pipeline was last looked through for rows that no batch has written; after a restore it is another one.';

alter table batchledger.key_type
    drop constraint key_type_pkey,
    add primary key (pipeline, rule, columns);
