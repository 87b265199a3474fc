-- A header may name a schema by the GUID of its content instead of an id, so an id is a text.

alter table batchledger.attempt_writer_schema drop constraint attempt_writer_schema_registry_id_fkey;
alter table batchledger.writer_schema alter column id type text;
alter table batchledger.attempt_writer_schema alter column id type text;
alter table batchledger.attempt_writer_schema add foreign key (registry, id) references batchledger.writer_schema;
comment on table batchledger.writer_schema is 'A schema that records were written with, or a reader''s; registry is the name of its connection, the fingerprint the SHA-256 of the definition.';
comment on column batchledger.writer_schema.id is 'The number that the registry gives the schema, its GUID, or subject and version of a reader''s schema.';
comment on table batchledger.attempt_writer_schema is 'The schemas that records of an attempt have named, and the reader''s.';
