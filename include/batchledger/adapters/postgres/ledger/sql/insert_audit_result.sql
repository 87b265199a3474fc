insert into batchledger.audit_result (pipeline, audited_at, name, outcome, severity, detail, observed, validation)
values (
    %(pipeline)s, %(audited_at)s, %(name)s, %(outcome)s, %(severity)s, %(detail)s, %(observed)s, %(validation)s)
