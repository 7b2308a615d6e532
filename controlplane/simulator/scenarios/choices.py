"""The policies that scenarios compare, under their usual names."""

from typing import Any, Final

from controlplane.protocol.spec import Choice, Synchronization


def batching(name: str, **parameters: Any) -> Synchronization:
    """A batching policy, with BSP."""
    return Synchronization(batching=Choice(name=name, parameters=parameters))


def barrier(name: str, **parameters: Any) -> Synchronization:
    """A barrier, with equal shares."""
    return Synchronization(barrier=Choice(name=name, parameters=parameters))


BSP: Final = Synchronization()
ASP: Final = barrier("asp")


def ssp(staleness: int) -> Synchronization:
    """Stale synchronous parallel."""
    return barrier("ssp", staleness=staleness)
