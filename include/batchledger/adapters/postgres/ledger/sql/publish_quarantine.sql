-- The moment is counted in whole seconds and milliseconds, because a double of both would not keep the latter.
insert into batchledger.quarantine
    (pipeline, topic, partition, "offset", "timestamp", timestamp_ms, key, value, headers, error, batch_id)
select distinct on (topic, partition, "offset")
    %(pipeline)s, topic, partition, "offset",
    case when timestamp_ms between 0 and 253402300799999 then
        timestamptz 'epoch' + timestamp_ms / 1000 * interval '1 second' + timestamp_ms %% 1000 * interval '1 millisecond'
    end,
    timestamp_ms, key, value, headers::json, error, %(batch_id)s
from {quarantine}
order by topic, partition, "offset"
