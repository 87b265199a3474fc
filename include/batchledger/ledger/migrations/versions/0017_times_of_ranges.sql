-- When the records of a range were written, so that a window of time finds them in any order of the log.

alter table batchledger.batch_range
    add column timestamps  int8range,
    add column untimed     bigint;
comment on column batchledger.batch_range.timestamps is 'From the smallest timestamp of the records to the largest, in milliseconds of Kafka; of rows, duplicates and quarantined records. Empty: none has one. Null: not noted, as of what was published before migration 0017.';
comment on column batchledger.batch_range.untimed is 'How many of these records have no timestamp.';

create index batch_range_by_time on batchledger.batch_range using gist (pipeline, timestamps) where (not isempty(held));
create index batch_range_untimed on batchledger.batch_range (pipeline) where untimed > 0;
