-- What is published is held by the batch that publishes it. The exclusion constraint refuses what is held already.
update batchledger.batch_range set published_live = %(is_live)s, held = int8multirange(offsets)
where batch_id = %(batch_id)s
