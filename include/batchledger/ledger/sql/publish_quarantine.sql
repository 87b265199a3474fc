insert into batchledger.quarantine
    (pipeline, topic, partition, "offset", "timestamp", key, value, headers, error, batch_id)
select distinct on (topic, partition, "offset")
    %(pipeline)s, topic, partition, "offset", "timestamp", key, value, headers::json, error, %(batch_id)s
from {quarantine}
order by topic, partition, "offset"
