"""Which of the choices of a job make no sense together, and why. All others compose.

What is asked is what a policy can do, never its name; so both policies and their classes can be asked about.
"""

from controlplane.core.choices import Budgeting, Partitioned
from controlplane.core.gates import Cutter, Gate, Namer


def conflict(batching: object, barrier: object, data: object) -> str | None:
    """Why these do not go together, as a sentence; None: they do."""
    if isinstance(barrier, Namer) and isinstance(data, Partitioned):
        return (
            f"barrier {_name(barrier)} drops the updates of late workers, and with data {_name(data)} nobody else "
            "draws their samples: data of slow workers would hardly count"
        )
    if isinstance(batching, Budgeting) and isinstance(barrier, Gate):
        return (
            f"batching {_name(batching)} gives all workers one time budget per iteration, and under barrier "
            f"{_name(barrier)} they have no iterations in common"
        )
    if isinstance(batching, Budgeting) and isinstance(barrier, Cutter):
        return f"both batching {_name(batching)} and barrier {_name(barrier)} decide when an iteration is cut short"
    if isinstance(batching, Budgeting) and isinstance(barrier, Namer):
        return (
            f"under batching {_name(batching)} all workers are ready at the same time, and barrier {_name(barrier)} "
            "would drop updates that nobody has to wait for"
        )
    return None


def _name(policy: object) -> str:
    name: str = getattr(policy, "name", type(policy).__name__)
    return name
