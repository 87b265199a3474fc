"""How a message quotes a person's text: enough to find it, never all of a long text, no password.

The content of a file or a form may be huge, nested, or a secret in the wrong place. Messages go to logs, to pages and
to Airflow's database. Standard library only.
"""

import re
from reprlib import Repr
from typing import Any

from typing_extensions import override

LONGEST_TEXT = 64
"""The longest name of an expectation fits."""
LONGEST_SENTENCE = 400
_LARGEST_NUMBER = 2**64
# A password may hold any character, so the hidden part reaches to the last @.
_SECRET = re.compile(r"(?<=//)\S+(?=@)|(?i:(?<=password)|(?<=passwd)|(?<=secret)|(?<=token))\s*[=:]\s*\S+")


class _Short(Repr):
    """Shows the beginning of a text, and the first items of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxlist = self.maxtuple = 4

    @override
    def repr_str(self, x: str, level: int) -> str:
        """Return a text without the login of an address, and without a named password, secret or token."""
        shown = _SECRET.sub("…", x[:LONGEST_SENTENCE])
        return repr(shown if len(shown) <= LONGEST_TEXT else f"{shown[: LONGEST_TEXT - 1]}…")

    @override
    def repr_int(self, x: int, level: int) -> str:
        """Return a number, or words for a huge one: Python refuses to write out the largest."""
        return super().repr_int(x, level) if abs(x) < _LARGEST_NUMBER else "a number of more than 64 bits"

    @override
    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """Return only whether a mapping has keys."""
        return "a mapping" if x else "{}"


def quote(value: Any) -> str:
    """Return a value as Python writes it, in a hundred characters or so."""
    return _Short().repr(value)


def shorten(text: str) -> str:
    """Return a sentence with a quotation, cut off if it is too long."""
    return text if len(text) <= LONGEST_SENTENCE else f"{text[: LONGEST_SENTENCE - 1]}…"
