-- What is judged to be a duplicate now and was not listed before.
select * from batchledger_judged where is_duplicate and not is_settled
