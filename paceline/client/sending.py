"""Conversion between our requests and httpx's."""

from typing import Any

import httpx

from paceline.client.steps import Lost, Reply, Send

NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""Errors before any byte of the request was written."""


def arguments(request: Send) -> dict[str, Any]:
    """Arguments of httpx's ``request``."""
    return {
        "method": request.method,
        "url": request.path,
        "params": request.params or None,
        "headers": request.headers,
        "content": request.content,
    }


def reply_of(response: httpx.Response) -> Reply:
    """The reply as our type."""
    return Reply(response.status_code, {**response.headers}, response.content)


def lost(error: httpx.HTTPError) -> Lost:
    """Why no answer came, and whether the request went out."""
    return Lost(str(error) or type(error).__name__, was_sent=not isinstance(error, NOT_SENT))
