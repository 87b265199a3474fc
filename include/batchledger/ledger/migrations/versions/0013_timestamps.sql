-- The timestamp of a record in quarantine as Kafka has it: any number of milliseconds, also one that is no moment of
-- the years 1970 to 9999, and -1 for none. "timestamp" is the moment, if it is one. Records from before have only that.
alter table batchledger.quarantine add column timestamp_ms bigint;
comment on column batchledger.quarantine.timestamp_ms is 'Milliseconds since 1970 as Kafka has them; -1 for none.';
