"""The page of a watch: its newest look, and the ones before it in numbers."""

from datetime import UTC
from typing import Any

from batchledger.config.watch_file import WatchConfig
from batchledger.interfaces.data_docs.folder import DocsFolder, write_page
from batchledger.interfaces.data_docs.index import find_template, write_index
from batchledger.interfaces.wording import list_differences
from batchledger.ledger.watches import WatchStore
from batchledger.looking import watch_ledger_dsn
from batchledger.monitoring.watched_tables import ask_look
from batchledger.watching.history import LookSummary, load_summaries

LOOKS_KEPT = 200
# Another number makes all pages anew, because they look different.
_LOOK = 2


def write_watch(folder: DocsFolder, watch: WatchConfig) -> bool:
    """Write the page of a watch if there was a look since; return whether it was written.

    Raises ServiceUnavailableError, ConfigurationError, OSError.
    """
    name, dsn = watch.name, watch_ledger_dsn(watch)
    looks = load_summaries(dsn, [name], LOOKS_KEPT).get(name, [])
    summary = _summarise(name, looks[0] if looks else None)
    if folder.read_summary(name) == summary:
        return False
    # Imported here because Great Expectations takes seconds.
    from batchledger.checks.ledger import judge

    look = WatchStore(dsn).load_newest(name)
    page = find_template("watch.html.j2").render(
        name=name,
        look=look,
        differences=list_differences(look) if look else (),
        checks=judge(ask_look(look)) if look else (),
        looks=looks,
    )
    write_page(folder.history_of(name), page)
    folder.write_summary(name, summary)
    write_page(folder.index, write_index(folder.list_summaries()))
    return True


def _summarise(name: str, look: LookSummary | None) -> dict[str, Any]:
    newest = look and {
        "outcome": look.outcome.value,
        "looked_at": f"{look.looked_at.astimezone(UTC):%Y-%m-%d %H:%M:%S UTC}",
        "told": look.told,
    }
    return {"pipeline": name, "stamp": str(_LOOK), "newest": None, "audit": None, "watch": newest or {}}
