-- The record that takes the most room.
select *
from ({records}) records (key, value, topic, partition, "offset", timestamp_ms)
order by coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) desc
limit 1
