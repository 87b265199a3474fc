insert into batchledger.incident (
    pipeline, kind, subject, severity, title, lines, command, batch_id, run, opened_at, seen_at)
values (
    %(pipeline)s, %(kind)s, %(subject)s, %(severity)s, %(title)s, %(lines)s, %(command)s, %(batch_id)s, %(run)s, %(now)s,
    %(now)s)
returning incident_id
