from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from controlplane.core.commands import CARRIERS, AnyCommand, SetShares
from controlplane.core.events import Entry, WorkerMessageReceived
from controlplane.policies.registry import resolve
from controlplane.protocol.messages import IterationReport
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recording
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.replay import Decided, Replayed, decided, replay
from controlplane.simulator.scenario import chosen
from tests.simulator.worlds import world


@dataclass
class Recorded:
    entries: list[Entry]
    decisions: list[Decided] = field(default_factory=list)

    def replay(self, *, is_over: bool = True) -> Replayed:
        return replay(self.entries, self.decisions, job=1, resolve=resolve, is_over=is_over)


def stored(commands: list[AnyCommand]) -> list[Decided]:
    return [decided(command) for command in commands if not isinstance(command, CARRIERS)]


@pytest.fixture
def recorded() -> Recorded:
    recording = Recording(keep=True)
    scenario = world(wavering=Wavering(noise=0.1))
    Cluster(scenario, chosen(scenario, "lb-bsp"), seed=3, recording=recording).run()
    return Recorded(recording.entries, stored(recording.commands))


def test_recorded_events_lead_to_the_recorded_decisions(recorded: Recorded) -> None:
    found = recorded.replay()
    assert found.difference is None
    assert found.decisions == len(recorded.decisions) > 20
    assert found.entries == len(recorded.entries)


def test_the_first_decision_that_differs_is_named(recorded: Recorded) -> None:
    at = next(n for n, one in enumerate(recorded.decisions) if one.kind == "set-shares" and n > 15)
    was = recorded.decisions[at]
    shares = was.content["shares"] | {"0": was.content["shares"]["0"] + 1}
    recorded.decisions[at] = replace(was, content=was.content | {"shares": shares})
    difference = recorded.replay().difference
    assert difference is not None
    assert (difference.number, difference.recorded, difference.replayed) == (at, recorded.decisions[at], was)
    assert f"decision {at}, caused by entry {was.cause}: recorded was set-shares" in difference.sentence


def test_rounding_and_wording_are_no_difference(recorded: Recorded) -> None:
    for at, was in enumerate(recorded.decisions):
        if was.kind == "set-shares" and was.content["predicted_s"]:
            near = was.content["predicted_s"] * (1 + 1e-12)
            recorded.decisions[at] = replace(was, content=was.content | {"predicted_s": near, "reason": "otherwise"})
    assert recorded.replay().difference is None


def test_an_event_with_other_content_leads_elsewhere(recorded: Recorded) -> None:
    for at, entry in enumerate(recorded.entries[60:], start=60):
        event = entry.event
        if isinstance(event, WorkerMessageReceived) and isinstance(event.message, IterationReport):
            slower = replace(event.message, compute_s=event.message.compute_s * 3)
            recorded.entries[at] = replace(entry, event=replace(event, message=slower))
            break
    difference = recorded.replay().difference
    assert difference is not None
    assert difference.replayed is not None
    assert difference.replayed.kind == SetShares.__struct_config__.tag


def test_decisions_of_a_complete_record_may_not_be_missing_but_those_of_a_running_job_may(recorded: Recorded) -> None:
    last = recorded.decisions.pop()
    difference = recorded.replay().difference
    assert difference is not None
    assert (difference.recorded, difference.replayed) == (None, last)
    assert "recorded was nothing" in difference.sentence
    assert recorded.replay(is_over=False).difference is None
