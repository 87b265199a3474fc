insert into batchledger.check_result (batch_id, attempt, name, passed, detail, observed)
values (%(batch_id)s, %(attempt)s, %(name)s, %(passed)s, %(detail)s, %(observed)s)
