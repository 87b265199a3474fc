-- An accepted loss holds what no replay has published ahead of it.
update batchledger.batch_range mine
set published_live = true,
    held = int8multirange(mine.offsets) - coalesce((
        select range_agg(h.held) from batchledger.batch_range h
        where h.pipeline = mine.pipeline and h.topic = mine.topic and h.partition = mine.partition
            and h.held && mine.offsets and not isempty(h.held)), '{}')
where mine.batch_id = %(batch_id)s
