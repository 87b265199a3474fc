insert into batchledger.decision (pipeline, batch_id, kind, decided_by, reason, before, after)
values (%(pipeline)s, %(batch_id)s, %(kind)s, %(decided_by)s, %(reason)s, %(before)s, %(after)s)
returning decision_id, kind, pipeline, batch_id, decided_by, reason, decided_at, before, after
