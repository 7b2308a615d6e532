"""Explains a deadlocked simulation: which worker waits for what."""

from collections import defaultdict
from collections.abc import Sequence

from controlplane.policies.wording import listing
from controlplane.policies.wording import workers as named
from controlplane.protocol.worker import Phase
from controlplane.simulator.servers import Servers
from controlplane.simulator.workers import SimulatedWorker


def explain_deadlock(workers: Sequence[SimulatedWorker], servers: Servers) -> str:
    """Every worker, with what it waits for."""
    groups: dict[str, list[int]] = defaultdict(list)
    for worker in workers:
        groups[_what_for(worker, servers)].append(worker.rank)
    return "; ".join(f"{named(ranks)} {what}" for what, ranks in groups.items())


def _what_for(worker: SimulatedWorker, servers: Servers) -> str:
    orders, k = worker.orders, worker.iteration
    if worker.silent_s is not None:
        return f"silent since {worker.silent_s:g} s"
    if not worker.is_alive:
        return "dead"
    if worker.phase is Phase.PULL:
        awaited = listing(f"w{rank}" for rank in servers.awaited())
        return f"waits for version {k}, which wants iteration {servers.version} of {awaited or 'nobody'}"
    if worker.phase is Phase.STARTING:
        return "waits for its first orders"
    if worker.phase is Phase.SHARE:
        return f"waits for its share of iteration {k}"
    if worker.phase is Phase.STALE:
        return f"pushed iteration {k} in vain and waits for orders"
    if worker.phase is Phase.BOUNDARY and orders is not None:
        held = ", by orders to hold" if orders.hold else ""
        return f"waits for the grant of iteration {k}, granted up to {orders.watermark}{held}"
    return worker.phase.name.lower()
