-- A record that was set aside already, by a twin of this step or before a crash, stays as it is.
insert into {quarantine} (topic, partition, "offset", "timestamp", key, value, headers, error, checks)
select %(topic)s, %(partition)s, %(offset)s, %(timestamp)s::timestamptz, %(key)s, %(value)s, %(headers)s, %(error)s,
    %(checks)s
where not exists (
    select from {quarantine} q
    where q.topic = %(topic)s and q.partition = %(partition)s and q."offset" = %(offset)s)
