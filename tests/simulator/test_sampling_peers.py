"""Workers that sample one another, in virtual time."""

from typing import Any

import pytest

from controlplane.core.events import WorkerMessageReceived
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.spec import Choice, Stop, Synchronization
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import Recording
from controlplane.simulator.network import Link
from controlplane.simulator.scenario import Happening
from tests.simulator.worlds import machines, world


def run(
    speeds: tuple[float, ...] = (1000.0, 1000.0, 500.0, 250.0), *, latency_s: float = 0.001, **given: Any
) -> tuple[Cluster, list[tuple[int, IterationReport]]]:
    happenings = given.pop("happenings", ())
    barrier = Choice(name=given.pop("name", "pbsp"), parameters={"sample": 2} | given)
    scenario = world(
        groups=machines(*speeds, link=Link(latency_s=latency_s)), stop=Stop(iterations=60), happenings=happenings
    )
    recording = Recording(keep=True)
    cluster = Cluster(scenario, Synchronization(barrier=barrier), seed=1, recording=recording)
    cluster.run()
    events = [entry.event for entry in recording.entries]
    heard = [event for event in events if isinstance(event, WorkerMessageReceived)]
    return cluster, [(e.rank, e.message) for e in heard if isinstance(e.message, IterationReport)]


@pytest.mark.parametrize(("name", "staleness"), [("pbsp", 0), ("pssp", 2)])
def test_the_bound_holds_in_virtual_time(name: str, staleness: int) -> None:
    parameters = {"staleness": staleness} if staleness else {}
    cluster, reports = run(name=name, sampling="peers", **parameters)
    passed = [report for _, report in reports if report.sampled]
    assert len(passed) > len(reports) * 0.6
    for report in passed:
        assert len(report.sampled) == 2
        assert min(report.sampled.values()) >= report.iteration - staleness
    assert sum(report.samples for _, report in reports) == 60 * 256
    assert cluster.driver.over


def test_it_takes_as_long_as_with_the_control_plane_sampling() -> None:
    """Both draw alike; questions cost the time of a message each way."""
    peers, _ = run(sampling="peers")
    central, _ = run(sampling="central")
    assert peers.now == pytest.approx(central.now, rel=0.1)


def test_at_most_two_messages_for_each_sampled_worker_and_try() -> None:
    cluster, reports = run(sampling="peers", sample=3)
    asked = sum(report.questions for _, report in reports)
    assert asked <= cluster.questions.messages // 2 + 4 * 3
    assert cluster.questions.messages >= 2 * asked


def test_with_all_others_sampled_it_is_in_lockstep() -> None:
    _, reports = run(sampling="peers", sample=3)
    done = {rank: sum(each == rank for each, _ in reports) for rank in range(4)}
    assert max(done.values()) - min(done.values()) <= 3


@pytest.mark.parametrize("kind", ["crash", "vanish"])
def test_the_others_continue_when_one_is_gone(kind: str) -> None:
    cluster, reports = run(sampling="peers", happenings=(Happening(kind=kind, at_s=2.0, index=3),))
    assert cluster.driver.over
    assert sum(report.samples for _, report in reports) >= 55 * 256
