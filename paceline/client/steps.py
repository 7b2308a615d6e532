"""Steps that an operation requests from its client: send a request, or wait."""

from collections.abc import Generator, Mapping
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Send(msgspec.Struct, frozen=True):
    """A request. Paths are relative to ``/api/v1/``."""

    method: str
    path: str
    params: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    content: bytes | None = None

    @property
    def may_repeat(self) -> bool:
        """Whether it may be sent twice: reading, setting, removing, and requests that carry a key."""
        return self.method in {"GET", "PUT", "DELETE"} or "Idempotency-Key" in self.headers


class Sleep(msgspec.Struct, frozen=True):
    """Wait this many seconds."""

    seconds: float


class Reply(msgspec.Struct, frozen=True):
    """An answer; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Lost(Exception):
    """No answer came; ``was_sent``: the request may have been carried out all the same."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


Step = Send | Sleep
Operation = Generator[Step, Reply | None, T]
"""Yields steps, is sent the reply to each request, or ``Lost`` is thrown into it, and returns the result."""
