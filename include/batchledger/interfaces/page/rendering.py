"""Pages as answers: their templates with what each page needs, and the headers that keep them to themselves."""

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment

from batchledger import interfaces
from batchledger.interfaces.markup import load_templates
from batchledger.interfaces.page.batch_list import name_lane, name_state
from batchledger.interfaces.page.ordering import keep_fields, write_query
from batchledger.interfaces.page.ribbon import COLUMNS
from batchledger.model.records.comparison import describe_replaced

# Everything comes from here, no script stands in a page, and no other site shows it in a frame.
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
    """Return a file that pages need; their style sheet begins with the look that they share with Data Docs."""
    own = files(__package__).joinpath("static", name).read_bytes()
    return own if name != "style.css" else files(interfaces).joinpath("templates", "parts.css").read_bytes() + own


@cache
def _templates() -> Environment:
    return load_templates(
        __package__,
        columns=COLUMNS,
        static=_locate_static,
        replaced_words=describe_replaced,
        write_query=write_query,
        keep_fields=keep_fields,
        name_lane=name_lane,
        name_state=name_state,
    )


def _locate_static(name: str) -> str:
    """Return the address of a file, below the root of the pages."""
    return f"static/{name}?{hashlib.sha256(read_static(name)).hexdigest()[:12]}"
