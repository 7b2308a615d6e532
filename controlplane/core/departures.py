"""What follows for the others when a worker counts no longer."""

from controlplane.core import arrivals, changes, ending, iterations, refill, roster
from controlplane.core.handling import Handling
from controlplane.core.records import Worker


def go_on_without(handling: Handling, worker: Worker, why: str) -> None:
    """The others go on in a generation of their own, from the open iteration on. ``why`` completes "w3 ..."."""
    roster.depart(handling, worker, why)
    refill.on_worker_gone(handling, worker)
    iterations.complete(handling)
    arrivals.let_in_latecomers(handling)
    arrivals.reconsider(handling)
    changes.settle(handling)
    ending.finish_if_all_have(handling)
