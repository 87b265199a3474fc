-- What the ledger was when the pipeline's table was last looked through, and what it is now. A ledger that was restored is
-- another table, or lies in another file.
select p.ledger_mark, format(
    '%%s/%%s/%%s/%%s', c.system_identifier, d.oid, 'batchledger.position'::regclass::oid,
    pg_relation_filenode('batchledger.position')
)
from batchledger.pipeline p, pg_control_system() c, pg_database d
where p.name = %s and d.datname = current_database()
