create temporary table batchledger_repeated on commit drop as
{repeated}
