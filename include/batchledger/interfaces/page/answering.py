"""How the page takes an order: the fields of its form, and what is said against it."""

from collections.abc import Callable
from typing import Annotated
from urllib.parse import parse_qsl

import anyio.to_thread
from fastapi import Depends, HTTPException, Request, status
from fastapi.responses import HTMLResponse

from batchledger.database.sessions import keep_connections
from batchledger.interfaces.page.forms import Fields
from batchledger.interfaces.page.rendering import show
from batchledger.model.errors import BatchledgerError, ServiceUnavailableError

BODY_BYTES = 200_000


async def read_fields(request: Request) -> Fields:
    """Return the fields of a form; of those that come twice the last one."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, "this form holds too much")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
    except ValueError as error:
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "this is no form") from error
    if any("\0" in each for each in fields.values()):
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "a field holds a character that no database can store")
    return fields


Form = Annotated[Fields, Depends(read_fields)]


async def tell_answer(request: Request, answer: Callable[[], HTMLResponse]) -> HTMLResponse:
    """Return the answer, or what is said against it.

    In threads of their own: an order may wait for a run that Airflow's routes start, and they need theirs.
    """

    def tell() -> HTMLResponse:
        try:
            with keep_connections():
                return answer()
        except ServiceUnavailableError as error:
            return show(request, "refused.html.j2", status.HTTP_503_SERVICE_UNAVAILABLE, text=str(error))
        except BatchledgerError as error:
            return show(request, "refused.html.j2", status.HTTP_409_CONFLICT, text=str(error))

    return await anyio.to_thread.run_sync(tell, limiter=request.app.state.orders)
