-- A batch that a person has accepted may be refused by its target once more.
insert into batchledger.check_result
    (batch_id, attempt, name, outcome, detail, observed, severity, suite, validation, on_failure)
values (
    %(batch_id)s, %(attempt)s, %(name)s, %(outcome)s, %(detail)s, %(observed)s, %(severity)s, %(suite)s, %(validation)s,
    %(on_failure)s)
on conflict (batch_id, attempt, name) do update
set outcome = excluded.outcome, detail = excluded.detail, observed = excluded.observed, severity = excluded.severity,
    suite = excluded.suite, validation = excluded.validation, on_failure = excluded.on_failure, judged_at = now()
