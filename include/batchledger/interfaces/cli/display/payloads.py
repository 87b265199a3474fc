"""What a person copies of a record: its bytes, on one line each, however narrow the terminal is."""

from rich.text import Text

from batchledger.interfaces.wording import escape


def whole(label: str, content: str) -> Text:
    """Return a line that no terminal wraps."""
    return Text.assemble((label, "dim"), content, no_wrap=True)


def whole_bytes(label: str, content: bytes | None) -> Text:
    """Return bytes on a line that no terminal wraps; other than ASCII is escaped."""
    return whole(label, escape(content))


def find_fault(error: str | None, value: bytes | None) -> str | None:
    """Return where a value that was set aside stops being JSON, without a byte of it; None if that is not the error."""
    from batchledger.formats.decoding.faults import explain_fault

    return None if error is None or value is None else explain_fault(error, value)
