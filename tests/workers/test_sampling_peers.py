"""Workers that sample one another themselves: real trainers, with and without a control plane."""

from collections.abc import Iterator
from typing import Any

import pytest

from controlplane.core.commands import IssueOrders, RaiseFlag, SetRoster
from controlplane.core.events import ChangeRequested
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import ProcessOrder
from controlplane.protocol.spec import Choice, Emulation, JobSpec, Stop, Synchronization
from controlplane.runtime.embedded.ground import free_port
from tests.support.waiting import eventually
from tests.workers.driver import job_spec
from tests.workers.plane import Plane
from workers.peers import neighbours
from workers.peers.responder import Responder

SPEEDS = {rank: Emulation(samples_per_second=speed) for rank, speed in enumerate([2000.0, 2000.0, 1000.0, 500.0])}


def spec_of(iterations: int, name: str = "pbsp", **parameters: object) -> JobSpec:
    barrier = Choice(name=name, parameters={"sampling": "peers", "sample": 2} | parameters)
    stop = Stop(iterations=iterations)
    return job_spec(workers=4, batch_size=16, stop=stop, synchronization=Synchronization(barrier=barrier))


def said(plane: Plane) -> Iterator[tuple[int, IterationReport]]:
    """What the workers have said, whether it was handled or not."""
    for (role, rank), process in list(plane.processes.items()):
        if role == "worker":
            yield from ((rank, report) for report in process.link.heard(IterationReport))


def assert_bound_holds(plane: Plane, *, sample: int, staleness: int = 0) -> int:
    """By the workers' own records; how many iterations were begun by asking."""
    asked = 0
    for rank, report in said(plane):
        assert rank not in report.sampled
        for iteration in report.sampled.values():
            assert iteration >= report.iteration - staleness
        if report.sampled:
            assert len(report.sampled) == sample
            asked += 1
    return asked


def done(plane: Plane) -> dict[int, int]:
    return {rank: max((r.iteration for each, r in said(plane) if each == rank), default=-1) for rank in range(4)}


@pytest.mark.parametrize("encrypts", [False, True], ids=["plain", "tls"])
def test_a_job_whose_workers_ask_one_another_ends_with_its_samples_used(encrypts: bool) -> None:
    with Plane(spec_of(40), emulate=SPEEDS, encrypts=encrypts) as plane:
        plane.run()
    assert assert_bound_holds(plane, sample=2) > 60
    assert sum(report.samples for _, report in said(plane)) == 40 * 64
    assert sum(report.questions for _, report in said(plane)) > 0


def test_workers_continue_without_a_control_plane_and_keep_the_bound() -> None:
    with Plane(spec_of(4000, "pssp", staleness=1), emulate=SPEEDS) as plane:
        eventually(lambda: min(done(plane).values()) >= 6, what="a few iterations of each", seconds=60)
        plane.stand_still()
        before = done(plane)
        eventually(
            lambda: all(now >= before[rank] + 10 for rank, now in done(plane).items()),
            what="ten more iterations of each without a control plane",
            seconds=60,
        )
        assert assert_bound_holds(plane, sample=2, staleness=1) > 40
        issued = len(plane.gave(IssueOrders))
        plane.go_on()
        eventually(lambda: len(plane.gave(IssueOrders)) > issued, what="more samples in advance", seconds=60)
    assert plane.refused == []


def test_sampling_can_change_to_the_control_plane_and_back() -> None:
    with Plane(spec_of(400), emulate=SPEEDS) as plane:
        eventually(lambda: min(done(plane).values()) >= 4, what="a few iterations", seconds=60)
        central = Choice(name="pbsp", parameters={"sampling": "central", "sample": 2})
        plane.tell(ChangeRequested(actor="ann", choices={"barrier": central}))
        eventually(lambda: generation(plane) == 2, what="the change")
        first = done(plane)
        eventually(lambda: min(done(plane).values()) >= max(first.values()) + 4, what="some more", seconds=60)
        newest = [max(of(plane, rank), key=lambda report: report.iteration) for rank in range(4)]
        assert [report.sampled for report in newest] == [{}] * 4
        plane.tell(ChangeRequested(actor="ann", choices={"barrier": spec_of(1).synchronization.barrier}))
        eventually(lambda: generation(plane) == 3, what="the change back")
        first = done(plane)
        eventually(lambda: min(done(plane).values()) >= max(first.values()) + 4, what="some more", seconds=60)
        newest = [max(of(plane, rank), key=lambda report: report.iteration) for rank in range(4)]
        assert [len(report.sampled) for report in newest] == [2] * 4
    assert plane.refused == []


def test_the_others_continue_after_an_unreported_loss_of_a_worker() -> None:
    with Plane(spec_of(4000), emulate=SPEEDS) as plane:
        eventually(lambda: min(done(plane).values()) >= 4, what="a few iterations of each", seconds=60)
        plane.stand_still()
        plane.processes["worker", 3].link.stop()
        plane.processes["worker", 3].thread.join(30)
        before = done(plane)
        eventually(
            lambda: all(now >= before[rank] + 10 for rank, now in done(plane).items() if rank != 3),
            what="ten more iterations of the others",
            seconds=60,
        )
        plane.go_on()


def test_a_worker_that_others_cannot_reach_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a firewall: it asks, and no one can ask it."""

    class Walled(Responder):
        def __init__(self, order: ProcessOrder, *arguments: Any) -> None:
            super().__init__(order, *arguments)
            if order.index == 3:
                self.port = free_port()  # where no one listens

    monkeypatch.setattr(neighbours, "Responder", Walled)
    with Plane(spec_of(4000, sample=3), emulate=SPEEDS) as plane:
        eventually(lambda: plane.gave(RaiseFlag), what="a finding", seconds=60)
        flag = plane.gave(RaiseFlag)[0]
        assert (flag.rank, flag.kind) == (3, "unanswered")
        assert "sampling: central" in flag.reason
        before = done(plane)
        eventually(lambda: min(done(plane).values()) >= max(before.values()) + 4, what="more iterations", seconds=60)
    told = [(rank, report) for rank, report in said(plane) if report.iteration > 0 and report.sampled]
    assert {tuple(report.unanswered) for rank, report in told if rank != 3} == {(3,)}
    assert {tuple(report.unanswered) for rank, report in told if rank == 3} == {()}
    assert plane.refused == []


def generation(plane: Plane) -> int:
    return len(plane.gave(SetRoster))


def of(plane: Plane, rank: int) -> list[IterationReport]:
    return [report for each, report in said(plane) if each == rank]
