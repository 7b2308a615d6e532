"""A database that is busy: how that differs from other errors, and what a client is answered.

Somebody else holds a lock for too long, or all connections are taken. ``problems`` answers 503 for it.
"""

import sys
from collections.abc import Iterator
from typing import Final

from django.db import OperationalError

RETRY_AFTER_S: Final = 2

STATES: Final = frozenset({"40001", "40P01", "53300", "55P03", "57014", "57P03"})
"""PostgreSQL's words for: others write the same rows, a deadlock, too many connections, a lock that was not had in
time, a statement that took too long, and a server that is just starting."""

WORDS: Final = ("is locked", "too many clients", "connection slots are reserved", "statement timeout", "lock timeout")
"""Of errors without such a state: SQLite's, and those of a connection that was never made."""


def is_busy(error: BaseException | None) -> bool:
    """Whether the database could not be used for a moment only: the same request may well succeed when repeated."""
    return any(_tells_of_it(each) for each in _chain(error))


def told(error: BaseException) -> str:
    """The sentence for whoever asked."""
    found = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"the database is busy ({found}), so nothing was changed; try again in {RETRY_AFTER_S} seconds"


def headers() -> dict[str, str]:
    """Of the answer: when to come back."""
    return {"Retry-After": str(RETRY_AFTER_S)}


def busy_error_now() -> BaseException | None:
    """What is being handled, if that is a busy database: an error of other middleware, such as of saving a session."""
    error = sys.exc_info()[1]
    return error if is_busy(error) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from, for as long as that is of the database."""
    while error is not None:
        yield error
        error = error.__cause__


def _tells_of_it(error: BaseException) -> bool:
    if getattr(error, "sqlstate", None) in STATES:
        return True
    return isinstance(error, OperationalError) and any(word in str(error) for word in WORDS)
