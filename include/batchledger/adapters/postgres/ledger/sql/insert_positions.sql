insert into batchledger.position (pipeline, topic, partition, origin_offset, next_offset, cluster_id, topic_id)
select %(pipeline)s, first.topic, first.partition, first.start, first.start, first.cluster_id, first.topic_id
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(clusters)s::text[], %(topic_ids)s::text[])
    as first (topic, partition, start, cluster_id, topic_id)
on conflict do nothing
