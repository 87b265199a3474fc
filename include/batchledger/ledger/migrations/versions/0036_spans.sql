-- History that is older than history.keep is joined: the last of the batches answers for all of them.

alter table batchledger.batch
    add column joined_from bigint check (joined_from < batch_id);
comment on column batchledger.batch.joined_from is
    'The first of the batches that were joined into this one; null: it is one batch. Rows of the target keep the ids that they were written with: all ids of the pipeline from here to batch_id mean this batch.';
alter table batchledger.batch
    add constraint batch_spans_disjoint exclude using gist
        (pipeline with =, int8range(joined_from, batch_id, '[]') with &&) where (joined_from is not null);

-- What refers to a batch is looked for when the batch goes.
create index incident_of_batch on batchledger.incident (batch_id) where batch_id is not null;
create index payload_look_of_batch on batchledger.payload_look (batch_id) where batch_id is not null;
