-- An oid is unique within one database only. In a restored database a table may have the oid that another pipeline's
-- table had, and the oid alone would say that it is the other pipeline's. If there is no table of the stored name and
-- oid, the pipeline keeps what it has, and is refused until a person adopts the table: the ledger was restored before
-- it was migrated.

update batchledger.pipeline p
set target_identity = format('%s/%s/%s', s.system_identifier, d.oid, c.oid)
from pg_control_system() s, pg_database d, pg_class c join pg_namespace n on n.oid = c.relnamespace
where d.datname = current_database()
    and p.target = n.nspname || '.' || c.relname and p.target_identity = c.oid::text;

comment on column batchledger.pipeline.target_identity is
    'What tells the target that earlier batches were published to from another one of the same name, which is refused: cluster, database and oid of a table, cluster and id of a topic, uuid of an Iceberg table.';

alter table batchledger.pipeline add column ledger_mark text;
update batchledger.pipeline
set ledger_mark = format(
    '%s/%s/%s/%s', s.system_identifier, d.oid, 'batchledger.position'::regclass::oid,
    pg_relation_filenode('batchledger.position')
)
from pg_control_system() s, pg_database d
where d.datname = current_database() and target is not null;
comment on column batchledger.pipeline.ledger_mark is
    'What the ledger was when the table of the pipeline was last looked through for rows that no batch has written; after a restore it is another one.';

create table batchledger.key_type (
    pipeline  text not null references batchledger.pipeline,
    rule      text not null,
    columns   text[] not null,
    types     text[] not null,
    primary key (pipeline, rule, columns),
    check (cardinality(columns) = cardinality(types))
);
comment on table batchledger.key_type is
    'How the keys that a pipeline remembers were written; of another type the same value has another hash, and would be forgotten.';
