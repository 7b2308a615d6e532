"""Detects errors of a busy database, and describes them to the client.

Another transaction holds a lock for too long, or all connections are in use. ``problems`` answers 503 for it.
"""

import sys
from collections.abc import Iterator
from typing import Final

from django.db import OperationalError

RETRY_AFTER_S: Final = 2

STATES: Final = frozenset({"40001", "40P01", "53300", "55P03", "57014", "57P03"})
"""PostgreSQL error codes for: a write conflict, a deadlock, too many connections, a lock that was not granted in
time, a statement that took too long, and a server that is still starting."""

WORDS: Final = ("is locked", "too many clients", "connection slots are reserved", "statement timeout", "lock timeout")
"""Messages of errors without a code: those of SQLite and of failed connections."""


def is_busy(error: BaseException | None) -> bool:
    """Whether the database was only temporarily unavailable, so that the same request may succeed when repeated."""
    return any(_is_busy(each) for each in _chain(error))


def explanation(error: BaseException) -> str:
    """The sentence for the client."""
    found = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"the database is busy ({found}), so nothing was changed; try again in {RETRY_AFTER_S} seconds"


def headers() -> dict[str, str]:
    """Headers of the response: when to retry."""
    return {"Retry-After": str(RETRY_AFTER_S)}


def busy_error_now() -> BaseException | None:
    """The current exception if a busy database caused it, including exceptions of other middleware."""
    error = sys.exc_info()[1]
    return error if is_busy(error) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exception and its causes, as far as they are database errors."""
    while error is not None:
        yield error
        error = error.__cause__


def _is_busy(error: BaseException) -> bool:
    if getattr(error, "sqlstate", None) in STATES:
        return True
    return isinstance(error, OperationalError) and any(word in str(error) for word in WORDS)
