update batchledger.incident
set severity = %(severity)s, title = %(title)s, lines = %(lines)s, command = %(command)s, batch_id = %(batch_id)s,
    run = %(run)s, seen_at = %(seen_at)s, ended_at = %(ended_at)s, ending = %(ending)s
where incident_id = %(incident_id)s
