"""Filters, sorts and pages machine cards by a query string."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from django.core.paginator import Page, Paginator

from controlplane.jobs.models import Job
from controlplane.telemetry.metrics import ITERATION
from frontend.parameters import Query, number_of, one_of
from frontend.queries.fleet import MachineCard
from frontend.queries.history import History

PER_PAGE: Final = 60
"""Divisible by one to six, so that rows of cards are complete."""

RECENT: Final = 10
"""Iterations of a job over which a worker's waiting is measured."""

STATES: Final = {"": "all", "online": "online", "offline": "offline", "flagged": "flagged", "free": "with free slots"}
ORDERS: Final = {"": "by join time", "load": "by CPU load", "waiting": "by waiting", "flag": "flagged first"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """A page of matching machines, and the available filters."""

    page: Page[MachineCard]
    of: int
    """Their total number."""
    waits: dict[int, float]
    """Recent waiting share of each machine's workers; only if sorted by it."""
    state: str
    label: str
    job: int | None
    order: str
    labels: list[str]
    jobs: list[int]

    @property
    def states(self) -> dict[str, str]:
        """The available states."""
        return STATES

    @property
    def orders(self) -> dict[str, str]:
        """The available orders."""
        return ORDERS


def picked(machines: Sequence[MachineCard], query: Query) -> Picked:
    """The machines that match the query, sorted and paged.

    Raises:
        QueryError: naming the parameter.
    """
    state, order = one_of(query, "state", STATES), one_of(query, "sort", ORDERS)
    label, job = query.get("label", "").strip()[:200], number_of(query, "job", "job")
    found = [
        card
        for card in machines
        if _IS[state](card)
        and (not label or label in _labels(card))
        and (job is None or any(slot.job == job for slot in card.held))
    ]
    waits = _waits(found) if order == "waiting" else {}
    keys: dict[str, Callable[[MachineCard], float]] = {
        "load": lambda card: -(card.cpu or 0.0),
        "waiting": lambda card: -waits.get(card.id, 0.0),
        "flag": lambda card: -float(card.flagged),
    }
    return Picked(
        page=Paginator(sorted(found, key=keys[order]) if order else found, PER_PAGE).get_page(query.get("page", 1)),
        of=len(machines),
        waits=waits,
        state=state,
        label=label,
        job=job,
        order=order,
        labels=sorted({label for card in machines for label in _labels(card)}),
        jobs=sorted({slot.job for card in machines for slot in card.held if slot.job is not None}),
    )


_IS: Final[Mapping[str, Callable[[MachineCard], bool]]] = {
    "": lambda card: True,
    "online": lambda card: card.online,
    "offline": lambda card: not card.online,
    "flagged": lambda card: card.flagged,
    "free": lambda card: card.online and card.taken < card.worker_slots,
}


def _labels(card: MachineCard) -> list[str]:
    return [f"{key}={value}" for key, value in card.labels.items()]


def _waits(machines: Sequence[MachineCard]) -> dict[int, float]:
    """The waiting share of each machine's workers over their jobs' last iterations."""
    jobs = Job.objects.in_bulk({slot.job for card in machines for slot in card.held if slot.job is not None})
    spent: dict[tuple[int, int], tuple[float, float]] = {}
    for pk, job in jobs.items():
        for rank, block in History(job).latest(ITERATION, RECENT).items():
            whole = float(np.sum([block[name].sum() for name in ITERATION]))
            spent[pk, rank] = float(block["waiting_s"].sum()), whole
    waits = {}
    for card in machines:
        held = [(slot.job, slot.rank) for slot in card.held if slot.job is not None and slot.rank is not None]
        here = [spent[place] for place in held if place in spent]
        whole = sum(each for _, each in here)
        if whole:
            waits[card.id] = sum(lost for lost, _ in here) / whole
    return waits
