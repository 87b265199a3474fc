"""Pages as text: templates that escape everything, and the few words that they have in common."""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from batchledger.interfaces.escaping import escaping_templates
from batchledger.interfaces.page.ribbon import COLUMNS
from batchledger.interfaces.wording import escape
from batchledger.model.records.comparison import describe_replaced
from batchledger.monitoring.health import describe_duration

PAYLOAD_CHARACTERS = 2000
# Everything comes from here, no script stands in a page, and nobody else shows it in a frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def show(request: Request, template: str, status: int = 200, **content: Any) -> HTMLResponse:
    """Return a page; its links begin where the request's do, which may be behind a proxy's prefix."""
    root = request.scope.get("root_path", "")
    content.setdefault("now", datetime.now(UTC))
    text = (
        _templates()
        .get_template(template)
        .render(
            root=root,
            airflow=root.removesuffix("/batchledger"),
            address=str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
            **content,
        )
    )
    return HTMLResponse(text, status)


@cache
def read_static(name: str) -> bytes:
    """Return a file that pages need."""
    return files(__package__).joinpath("static", name).read_bytes()


@cache
def _templates() -> Environment:
    templates = escaping_templates("batchledger.interfaces.page")
    templates.filters |= {
        "ago": _ago,
        "count": lambda value: "" if value is None else f"{value:,}",
        "duration": _duration,
        "moment": lambda value: f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if value else "",
        "payload": _payload,
        "slug": lambda text: re.sub(r"[^a-z0-9]+", "-", str(text).lower()).strip("-"),
        "words": lambda name: str(name).replace("_", " "),
    }
    templates.globals |= {"columns": COLUMNS, "static": _locate_static, "replaced_words": describe_replaced}
    return templates


def _locate_static(name: str) -> str:
    """Return the address of a file, below the root of the pages."""
    return f"static/{name}?{hashlib.sha256(read_static(name)).hexdigest()[:12]}"


def _ago(moment: datetime, now: datetime) -> str:
    """Return how long ago something was, in its largest unit: ``3 min ago``; ``in 5 h`` where it is yet to come."""
    away = abs(now - moment)
    if away < timedelta(seconds=1):
        return "now"
    text = " ".join(describe_duration(away).split(" ")[:2])
    return f"{text} ago" if moment < now else f"in {text}"


def _duration(seconds: float) -> str:
    """Return a duration in its two largest units, one of less than a minute with a tenth of a second."""
    return describe_duration(timedelta(seconds=seconds)) if seconds >= 60 else f"{seconds:.1f} s"


def _payload(value: bytes | None) -> str:
    """Return bytes as text in which nothing is hidden, cut where it is very long."""
    text = escape(value)
    return text if len(text) <= PAYLOAD_CHARACTERS else f"{text[:PAYLOAD_CHARACTERS]}… ({len(value or b''):,} bytes)"
