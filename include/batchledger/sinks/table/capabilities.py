"""What a table of the ledger's database can do: everything, because its rows move in the ledger's transaction."""

from batchledger.model.capabilities import Capabilities

CAPABILITIES = Capabilities(shares_transaction=True, no_emptying=None, no_erasing=None)
