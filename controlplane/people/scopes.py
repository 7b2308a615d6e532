"""Scopes that limit an API token within its role. Without scopes it may do everything that its role may."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    """One use."""

    METRICS = "metrics"
    """Read ``/metrics``, and nothing else."""
    READ = "read"
    """Read everything that the role may read."""
    JOBS = "jobs:write"
    MACHINES = "machines:write"
    ALERTS = "alerts:write"
    CREDENTIALS = "credentials:write"


WRITES: Final = {
    "jobs": Scope.JOBS,
    "simulations": Scope.JOBS,
    "agents": Scope.MACHINES,
    "alerts": Scope.ALERTS,
    "tokens": Scope.CREDENTIALS,
    "sessions": Scope.CREDENTIALS,
}
"""The scope for writing, by the first part of the path below ``/api/v1/``. Other paths take a token without scopes."""

Scopes = frozenset[Scope]
API: Final = "/api/v1/"


class ScopesRefused(ValueError):
    """No token has such scopes."""


def parse(names: Iterable[str]) -> Scopes:
    """Scopes by name.

    Raises:
        ScopesRefused: naming the one that is none.
    """
    found = set()
    for name in names:
        if name not in list(Scope):
            raise ScopesRefused(f"found the scope {name!r}, expected one of {', '.join(Scope)}")
        found.add(Scope(name))
    return frozenset(found)


def stored(scopes: Scopes) -> str:
    """As a token's row has them."""
    return " ".join(scope for scope in Scope if scope in scopes)


def needed(path: str, *, reading: bool) -> tuple[Scope, ...]:
    """The scopes of which a request needs one; nothing: it takes a token without scopes."""
    if reading:
        return (Scope.METRICS, Scope.READ) if path == "/metrics" else (Scope.READ,)
    below = path.removeprefix(API) if path.startswith(API) else ""
    scope = WRITES.get(below.partition("/")[0])
    return (scope,) if scope else ()


def allow(held: Scopes | None, path: str, *, reading: bool) -> bool:
    """Whether a token with these scopes may be used for it; None: it has none, and is not limited."""
    return held is None or any(scope in held for scope in needed(path, reading=reading))
