-- A batch that a person has accepted may be refused by its target once more.
insert into batchledger.check_result (batch_id, attempt, name, passed, detail, observed)
values (%(batch_id)s, %(attempt)s, %(name)s, %(passed)s, %(detail)s, %(observed)s)
on conflict (batch_id, attempt, name) do update
set passed = excluded.passed, detail = excluded.detail, observed = excluded.observed, judged_at = now()
