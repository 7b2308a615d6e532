"""Laws of every registered barrier: one joins by being registered.

Some are about watermarks alone, worker by worker and without time; the others about whole jobs in virtual time, with
workers of any speed that die when it suits them least.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.core.barriers import AsyncBarrier, Progress, QuorumBarrier
from controlplane.core.commands import HoldWorker, IssueOrders, MoveProcess, SetRoster
from controlplane.core.engine import Engine
from controlplane.policies import registry
from controlplane.policies.registry import resolve
from controlplane.protocol.worker import Phase
from tests.core.motion import Motion
from tests.policies import cluster
from tests.policies.barriers.crowd import Crowd, may_go
from tests.support.examples import examples

BARRIERS: list[dict[str, Any]] = [{"name": name} for name in registry.names("barrier")]
BARRIERS += [
    {"name": "pbsp", "resample": "held"},
    {"name": "pbsp", "strategy": "fixed"},
    {"name": "pssp", "strategy": "grouped", "resample": "held", "staleness": 1},
    {"name": "pssp", "strategy": "grouped", "threshold_s": 0.1},
    {"name": "pssp", "literal": True, "sample": 1},
    {"name": "ssp", "staleness": 0},
    {"name": "aggressive", "ratio": "adaptive"},
    {"name": "aggressive", "ratio": 1.0},
    {"name": "backup", "backups": 0},
]
GATES = [spec for spec in BARRIERS if isinstance(cluster.resolve("barrier", spec["name"]), AsyncBarrier)]
SPEEDS = st.lists(st.sampled_from([64.0, 250.0, 500.0, 900.0, 1000.0, 1000.0, 6400.0]), min_size=1, max_size=6)

laws = settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
every_barrier = pytest.mark.parametrize("barrier", BARRIERS, ids=lambda spec: "-".join(map(str, spec.values())))
every_gate = pytest.mark.parametrize("barrier", GATES, ids=lambda spec: "-".join(map(str, spec.values())))


def crowd(barrier: dict[str, Any], workers: int, **changes: Any) -> Crowd:
    parameters = {key: value for key, value in barrier.items() if key != "name"}
    return Crowd(barrier["name"], workers, **(parameters | changes))


def job(barrier: dict[str, Any], speeds: list[float], *, iterations: int, seed: int) -> Motion:
    return Motion(speeds, synchronization={"barrier": barrier}, stop={"iterations": iterations}, seed=seed)


def finish_any(told: Crowd, choices: list[int]) -> None:
    """Those who may go finish in any order; there is always one."""
    for choice in choices:
        assert told.going
        told.finish(told.going[choice % len(told.going)])


@every_gate
@laws
@given(workers=st.integers(1, 9), choices=st.lists(st.integers(0, 8), max_size=60), seed=st.integers(0, 9))
def test_someone_can_always_continue_and_the_slowest_always_can(barrier, workers, choices, seed):
    told = crowd(barrier, workers, seed=seed)
    for choice in choices:
        slowest = min(told.done.values())
        assert {rank for rank in told.done if told.done[rank] == slowest} <= set(told.going)
        told.finish(told.going[choice % len(told.going)])


@every_gate
@laws
@given(workers=st.integers(2, 9), choices=st.lists(st.integers(0, 8), max_size=40), seed=st.integers(0, 9))
def test_who_waits_for_the_dead_continues(barrier, workers, choices, seed):
    told = crowd(barrier, workers, seed=seed)
    finish_any(told, choices)
    slowest = min(told.done, key=lambda rank: told.done[rank])
    del told.done[slowest], told.watermark[slowest]
    passage = told.begin()
    assert told.going
    assert all(slowest not in wait.waits_for for wait in passage.waits.values())
    lowest = min(told.done.values())
    assert {rank for rank in told.done if told.done[rank] == lowest} <= set(told.going)


@every_gate
@laws
@given(workers=st.integers(1, 9), choices=st.lists(st.integers(0, 8), max_size=40), seed=st.integers(0, 9))
def test_state_survives_a_snapshot(barrier, workers, choices, seed):
    told, copy = crowd(barrier, workers, seed=seed), crowd(barrier, workers, seed=seed)
    for choice in choices:
        rank = told.going[choice % len(told.going)]
        told.finish(rank)
        copy.finish(rank)
        copy.state = msgspec.msgpack.decode(msgspec.msgpack.encode(copy.state), type=copy.gate.state_type)
        assert (copy.watermark, copy.state) == (told.watermark, told.state)


REFERENCES: list[tuple[str, dict[str, Any], int | None]] = [
    ("asp", {}, None),
    ("pbsp", {"sample": 0}, None),
    ("pssp", {"sample": 0}, None),
    ("ssp", {"staleness": 0}, 0),
    ("ssp", {"staleness": 3}, 3),
    *[
        ("pbsp", {"sample": 99, "strategy": strategy, "resample": resample}, 0)
        for strategy in ("dynamic", "fixed", "grouped")
        for resample in ("redrawn", "held")
    ],
    ("pssp", {"sample": 99, "staleness": 3}, 3),
    ("pssp", {"sample": 99, "staleness": 3, "resample": "held", "strategy": "grouped"}, 3),
]


@pytest.mark.parametrize(("name", "parameters", "staleness"), REFERENCES)
@settings(laws, max_examples=examples(40))
@given(workers=st.integers(1, 8), choices=st.lists(st.integers(0, 7), max_size=60))
def test_sample_of_no_one_is_asp_and_of_all_others_bsp_or_ssp(name, parameters, staleness, workers, choices):
    told = Crowd(name, workers, **parameters)
    for choice in choices:
        assert told.going == may_go(told.done, staleness)
        told.finish(told.going[choice % len(told.going)])


@laws
@given(workers=st.integers(1, 8), choices=st.lists(st.integers(0, 7), max_size=60))
def test_sample_of_all_others_releases_as_bsp_does(workers, choices):
    told, bsp = Crowd("pbsp", workers, sample=99), cluster.resolve("barrier", "bsp")
    for choice in choices:
        releases = bsp.release(Progress(done=dict(told.done), first_iteration=0, lead=1))
        assert told.going == [rank for rank in sorted(releases) if releases[rank].watermark > told.done[rank]]
        told.finish(told.going[choice % len(told.going)])


@pytest.mark.parametrize(
    "barrier",
    [spec for spec in GATES if spec["name"] in ("asp", "ssp") or spec.get("resample") == "held"],
    ids=lambda spec: "-".join(map(str, spec.values())),
)
@laws
@given(workers=st.integers(2, 7), data=st.data())
def test_order_of_those_who_arrive_together_does_not_matter(barrier, workers, data):
    told, other = crowd(barrier, workers), crowd(barrier, workers)
    for _ in range(12):
        together = data.draw(st.lists(st.sampled_from(told.going), unique=True, min_size=1))
        for rank in together:
            told.finish(rank)
        for rank in data.draw(st.permutations(together)):
            other.finish(rank)
        assert other.going == told.going


@every_barrier
@laws
@given(speeds=SPEEDS, iterations=st.integers(1, 12), seed=st.integers(0, 3), deaths=st.data())
def test_every_job_ends_although_processes_die(barrier, speeds, iterations, seed, deaths):
    told, killed = job(barrier, speeds, iterations=iterations, seed=seed), set()
    for rank in range(1, len(speeds)):
        if deaths.draw(st.booleans()):
            told.run(until_ms=deaths.draw(st.sampled_from([0.0, 1.0, 65.0, 250.0, 1000.0])))
            if not told.over and told.machines[rank].protocol.phase is not Phase.FINISHED:
                told.kill(rank)
                killed.add(rank)
    told.run()
    assert told.state == "succeeded"
    told.engine.validate()
    begun = [(start.rank, start.iteration) for start in told.starts]
    assert len(begun) == len(set(begun)), "an iteration was released twice"
    lost = [c for c in told.story.commands if isinstance(c, MoveProcess) and c.state == "lost"]
    assert {(c.role, c.index) for c in lost} == {("worker", rank) for rank in killed}
    for number, command in enumerate(told.story.commands):
        if isinstance(command, SetRoster):
            dead_now = set(range(len(speeds))) - set(command.ranks)
            later = [c for c in told.story.commands[number:] if isinstance(c, HoldWorker)]
            assert not dead_now & {rank for wait in later for rank in wait.waits_for}


@every_barrier
@laws
@given(speeds=SPEEDS, iterations=st.integers(1, 12), seed=st.integers(0, 3))
def test_samples_are_handed_out_once_and_as_many_as_were_requested(barrier, speeds, iterations, seed):
    told = job(barrier, speeds, iterations=iterations, seed=seed).run()
    taken = [position for start in told.starts for position in range(start.position, start.position + start.share)]
    names_some = isinstance(cluster.resolve("barrier", barrier["name"]), QuorumBarrier)
    if names_some and barrier != {"name": "backup", "backups": 0}:
        assert len(taken) == len(set(taken))
    else:
        assert sorted(taken) == list(range(iterations * told.story.spec.global_batch))


@every_barrier
@laws
@given(speeds=SPEEDS, seed=st.integers(0, 3))
def test_replay_gives_the_same_commands_from_snapshots_and_anew(barrier, speeds, seed):
    told = job(barrier, speeds, iterations=6, seed=seed).run()
    fresh = Engine(job=7, resolve=resolve)
    answers, commands = [], []
    for entry in told.story.entries:
        answers += fresh.handle(entry)
    replayed = Engine(job=7, resolve=resolve)
    for entry in told.story.entries:
        commands += replayed.handle(entry)
        replayed = Engine.restore(replayed.snapshot(), resolve=resolve)
    assert answers == told.story.commands == commands
    again = job(barrier, speeds, iterations=6, seed=seed).run()
    assert again.story.commands == told.story.commands


@every_barrier
@laws
@given(speeds=SPEEDS, seed=st.integers(0, 3))
def test_every_wait_is_explained_with_the_workers_that_it_is_for(barrier, speeds, seed):
    told = job(barrier, speeds, iterations=6, seed=seed).run()
    for wait in told.story.given(HoldWorker):
        assert wait.waits_for
        assert wait.rank not in wait.waits_for
        assert any(f"w{rank}" in wait.reason for rank in wait.waits_for)


@every_barrier
@laws
@given(speeds=SPEEDS, seed=st.integers(0, 3))
def test_orders_of_a_generation_only_raise_the_watermark(barrier, speeds, seed):
    told = job(barrier, speeds, iterations=6, seed=seed).run()
    highest: dict[tuple[int, int], int] = {}
    for command in told.story.given(IssueOrders):
        key = (command.rank, command.orders.generation)
        assert command.orders.watermark >= highest.get(key, -1)
        highest[key] = command.orders.watermark
