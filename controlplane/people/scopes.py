"""Scopes that limit an API token within its role. A token without scopes may do everything that its role may."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class Scope(StrEnum):
    """A scope of an API token."""

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
"""The scope for writing, by the first part of the path below ``/api/v1/``. Other paths need a token without scopes."""

Scopes = frozenset[Scope]
API: Final = "/api/v1/"


class ScopesRefused(ValueError):
    """A scope is unknown."""


def parse(names: Iterable[str]) -> Scopes:
    """The scopes with these names.

    Raises:
        ScopesRefused: naming the first unknown one.
    """
    found = set()
    for name in names:
        if name not in list(Scope):
            raise ScopesRefused(f"found the scope {name!r}, expected one of {', '.join(Scope)}")
        found.add(Scope(name))
    return frozenset(found)


def stored(scopes: Scopes) -> str:
    """The scopes as stored in a token's row."""
    return " ".join(scope for scope in Scope if scope in scopes)


def needed(path: str, *, reading: bool) -> tuple[Scope, ...]:
    """The scopes that allow a request; any one is enough. Empty: it needs a token without scopes."""
    if reading:
        return (Scope.METRICS, Scope.READ) if path == "/metrics" else (Scope.READ,)
    below = path.removeprefix(API) if path.startswith(API) else ""
    scope = WRITES.get(below.partition("/")[0])
    return (scope,) if scope else ()


def allow(held: Scopes | None, path: str, *, reading: bool) -> bool:
    """Whether a token with these scopes may be used for the request; None: a token without scopes, which may."""
    return held is None or any(scope in held for scope in needed(path, reading=reading))
