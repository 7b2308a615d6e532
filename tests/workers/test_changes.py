"""Running jobs change from every barrier to every other, with real trainers and servers: no update is lost."""

from collections import Counter
from itertools import pairwise

from controlplane.core.commands import ChangePolicies, NameQuorum
from controlplane.core.events import ChangeRequested, PauseRequested, ResumeRequested
from controlplane.core.states import JobState
from controlplane.policies.registry import names
from controlplane.protocol.spec import Choice, Emulation, Stop, Synchronization
from tests.workers.driver import job_spec
from tests.workers.plane import Plane
from tests.workers.recording import Recording, recorded

SPEEDS = {rank: Emulation(samples_per_second=speed) for rank, speed in enumerate([4000.0, 4000.0, 1500.0])}


def tour(kinds: list[str]) -> list[str]:
    """Every kind after every other, each pair once (Hierholzer's circuit of the complete graph)."""
    left = {kind: [other for other in kinds if other != kind] for kind in kinds}
    path, circuit = [kinds[0]], []
    while path:
        if left[path[-1]]:
            path.append(left[path[-1]].pop())
        else:
            circuit.append(path.pop())
    return circuit[::-1]


def choice(name: str) -> Choice:
    parameters = {"backup": {"backups": 1}, "pbsp": {"sample": 1}, "pssp": {"sample": 1, "literal": True}}
    return Choice(name=name, parameters=parameters.get(name, {}))


def assert_nothing_is_lost(plane: Plane, recording: Recording) -> None:
    """What was reported was summed by every server once, unless others were named for its iteration."""
    named = {command.iteration: command.ranks for command in plane.gave(NameQuorum)}
    reported = {(rank, report.iteration) for rank, report in plane.reports()}
    dropped = {update for update in reported if update[0] not in named.get(update[1], [update[0]])}
    for summed in recording.summed.values():
        assert max(Counter(summed).values()) == 1
        assert reported - dropped <= set(summed)


def test_from_every_barrier_to_every_other_no_update_is_lost() -> None:
    kinds = tour(names("barrier"))
    assert set(pairwise(kinds)) == {(a, b) for a in names("barrier") for b in names("barrier") if a != b}
    spec = job_spec(
        workers=3, stop=Stop(seconds=3600.0), synchronization=Synchronization(barrier=choice(kinds[0])), batch_size=8
    )
    with recorded() as recording, Plane(spec, emulate=SPEEDS) as plane:
        for count, kind in enumerate(kinds[1:], start=1):
            before = len(plane.reports())
            plane.until(lambda before=before: len(plane.reports()) >= before + 6, "reports")
            plane.tell(ChangeRequested(actor="ada", choices={"barrier": choice(kind)}))
            plane.until(lambda count=count: len(plane.gave(ChangePolicies)) >= count, f"the change to {kind}")
        before = len(plane.reports())
        plane.until(lambda: len(plane.reports()) >= before + 6, "reports")
        plane.tell(PauseRequested(actor="ada"))
        plane.until(lambda: bool(plane.commands) and plane.engine._job.hold.is_quiesced, "everybody stands")
        assert_nothing_is_lost(plane, recording)
        stood = len(plane.reports())
        plane.tell(ResumeRequested(actor="ada"))
        plane.until(lambda: len(plane.reports()) >= stood + 6 and plane.state is JobState.RUNNING, "it goes on")
        assert plane.refused == []
    assert [command.choices["barrier"].name for command in plane.gave(ChangePolicies)] == kinds[1:]
