-- A header may name a schema by the GUID of its content instead of an id, so an id is a text.

alter table batchledger.attempt_writer_schema drop constraint attempt_writer_schema_registry_id_fkey;
alter table batchledger.writer_schema alter column id type text;
alter table batchledger.attempt_writer_schema alter column id type text;
alter table batchledger.attempt_writer_schema add foreign key (registry, id) references batchledger.writer_schema;
comment on column batchledger.writer_schema.id is 'The number that the registry gives the schema, or its GUID.';
