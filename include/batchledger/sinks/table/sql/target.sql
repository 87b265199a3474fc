-- name: identify_table
-- Cluster, database and table. A server that was set up anew has another identifier, and so has a copy that was written
-- to since. A promoted standby and a recovery to a point in time have the same.
select format('%%s/%%s/%%s', c.system_identifier, d.oid, %s::regclass::oid)
from pg_control_system() c, pg_database d
where d.datname = current_database()
