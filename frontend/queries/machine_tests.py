"""Reads the tests of one machine for its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.fleet.machine_classes import (
    Compared,
    class_of,
    compared,
    emulation_note,
    failed_links,
    peers_results,
)
from controlplane.fleet.machine_tests import preflights_of
from controlplane.fleet.models import Agent, MachineTest
from controlplane.jobs.viewing import visible
from frontend.formats import significant


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """Results of the machine's tests."""

    takes: bool
    """Whether its agent supports tests."""
    open: MachineTest | None
    latest: MachineTest | None
    """The last finished test."""
    measured: Sequence[Compared]
    """Results of the last successful test."""
    of: MachineTest | None
    """The last successful test."""
    failed_links: Sequence[Mapping[str, Any]]
    earlier: Sequence[tuple[MachineTest, str]]
    """Tests before the last, latest first, each with its result as text."""
    machine_class: str
    emulated: str


def tests(agent: Agent) -> Tests:
    """All stored tests."""
    rows = list(preflights_of(agent))
    ended = [row for row in rows if row.ended_at is not None]
    good = next((row for row in ended if row.state == MachineTest.State.SUCCEEDED), None)
    return Tests(
        takes=agent.can_test,
        open=next((row for row in rows if row.ended_at is None), None),
        latest=ended[0] if ended else None,
        measured=compared(good.result, peers_results(agent, visible(Agent.objects.all()))) if good else (),
        of=good,
        failed_links=failed_links(good.result) if good else (),
        earlier=[(row, _in_words(row)) for row in ended[1:]],
        machine_class=class_of(agent),
        emulated=emulation_note(agent),
    )


def _in_words(row: MachineTest) -> str:
    if row.failure:
        return f"no result: {row.failure}"
    found = [
        f"{each.title} {significant(each.value)} {each.unit}" for each in compared(row.result, ()) if not each.machine
    ]
    return "; ".join([*found, *filter(None, (row.note,))])
