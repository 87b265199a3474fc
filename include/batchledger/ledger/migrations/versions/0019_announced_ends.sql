-- What a batch commits to a topic lies behind the ends that the topic had when the commit was announced. A search for
-- it begins there: it needs neither what others wrote before, nor the clocks.

alter table batchledger.batch add column announced_ends bigint[];
comment on column batchledger.batch.announced_ends is
    'The high watermark of each partition of the output topic, in their order, when the commit of the batch was announced for the first time; null where the sink is no topic, and of batches that were announced before this column was there.';
