"""``batchledger rekey``: the keys that a ledger remembers are hashed with a secret."""

from rich.text import Text

from batchledger.interfaces.cli.command_line import Name, OwnersLogin, find_ledger_of, load_pipeline
from batchledger.interfaces.cli.printing import Shown


def rekey(pipeline: Name, login: OwnersLogin = None) -> Shown:
    """Hash the keys of all pipelines of the ledger with the secret of the connection batchledger_keys, from now on.

    Keys that are there already are hashed once more. Runs wait for it.
    A ledger keeps its first secret. The owner of the ledger runs it.
    """
    from batchledger.ledger.rekeying import find_use
    from batchledger.ledger.rekeying import rekey as hash_keys
    from batchledger.settings.key_secret import read_key_secret

    dsn = find_ledger_of(load_pipeline(pipeline), login)
    done = hash_keys(dsn, read_key_secret())
    used_by, used_since = find_use(dsn)
    told = (
        "The keys of this ledger are hashed with this secret already."
        if done is None
        else f"The keys of this ledger are hashed with the secret from now on: {sum(done.values()):,} were there."
    )
    by = f"The login {used_by} did that at {used_since:%Y-%m-%d %H:%M:%S %Z}."
    return Shown({"keys": done, "used_by": used_by, "used_since": used_since}, [Text(f"{told} {by}")])
