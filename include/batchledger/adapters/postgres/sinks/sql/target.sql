-- name: identify_table
-- Cluster, database and table. A server that was set up anew, or is a copy that has been written to since, has another
-- identifier; a standby that was promoted and a recovery to a point in time have the same.
select format('%%s/%%s/%%s', c.system_identifier, d.oid, %s::regclass::oid)
from pg_control_system() c, pg_database d
where d.datname = current_database()
