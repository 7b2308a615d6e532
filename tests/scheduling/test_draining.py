"""Drains of machines: who leaves when, and where to."""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import given

from controlplane.scheduling import draining
from controlplane.scheduling.draining import Resident, Stage, Step, Tenant, next_steps, preview
from controlplane.scheduling.queueing import Offer


def tenant(workers: int = 0, servers: int = 0, **more: object) -> Tenant:
    residents = [Resident(role="worker", index=index) for index in range(workers)]
    residents += [Resident(role="server", index=index) for index in range(servers)]
    fields = {"job": 1, "runs": True, "workers": workers + 2, "servers": servers + 1, "free_servers": servers}
    return Tenant(residents=tuple(residents), **(fields | more))  # type: ignore[arg-type]


def offer(workers: int = 4, servers: int = 2, **labels: str) -> Offer:
    slots = {"workers": workers, "servers": servers, "free_workers": workers, "free_servers": servers}
    return Offer(machine=2, name="m2", labels=labels, **slots)


def asked(steps: list[Step]) -> list[tuple[str, str | None]]:
    return [(step.resident.title, step.ask) for step in steps]


def test_workers_that_a_job_can_spare_leave_together() -> None:
    assert asked(next_steps(tenant(workers=2))) == [("w0", "drain"), ("w1", "drain")]
    assert asked(next_steps(replace(tenant(workers=2), least=3))) == [
        ("w0", "drain"),
        ("w1", None),
    ]


def test_the_only_worker_of_a_job_stays_and_it_is_reported_once() -> None:
    alone = replace(tenant(workers=1), workers=1)
    [step] = next_steps(alone)
    assert (step.stage, step.ask, step.why) == (Stage.STAYS, None, draining.ONLY_WORKER)
    seen = replace(alone, residents=(replace(alone.residents[0], stage=Stage.STAYS),))
    assert next_steps(seen) == []
    assert asked(next_steps(replace(seen, workers=2))) == [("w0", "drain")]


def test_a_worker_that_has_left_is_included_again_and_counts_as_moved_once_it_runs() -> None:
    left = Resident(role="worker", index=0, stage=Stage.LEAVING, runs_here=False, holds_here=False)
    base = replace(tenant(), workers=1)
    [step] = next_steps(replace(base, residents=(left,)))
    assert (step.stage, step.ask) == (Stage.RETURNING, "include")
    back = replace(left, stage=Stage.RETURNING, runs_elsewhere=True)
    [step] = next_steps(replace(base, residents=(back,)))
    assert (step.stage, step.ask) == (Stage.MOVED, None)


def test_a_server_leaves_once_another_one_is_there() -> None:
    one = replace(tenant(servers=1), servers=1)
    [step] = next_steps(one)
    assert (step.stage, step.ask) == (Stage.ADDING, "add")
    added = replace(step.resident, stage=Stage.ADDING)
    assert next_steps(replace(one, residents=(added,))) == []
    assert asked(next_steps(replace(one, residents=(added,), servers=2))) == [("s0", "drain")]


def test_a_server_without_a_free_slot_elsewhere_leaves_only_if_there_are_others() -> None:
    one = replace(tenant(servers=1), free_servers=0)
    assert asked(next_steps(one)) == [("s0", "drain")]
    [step] = next_steps(replace(one, servers=1))
    assert (step.stage, step.why) == (Stage.STAYS, draining.ONLY_SERVER)


def test_a_declined_request_is_repeated_after_a_while() -> None:
    declined = Resident(role="worker", index=0, stage=Stage.LEAVING, declined=True, waited_s=1.0)
    base = replace(tenant(), workers=3)
    assert next_steps(replace(base, residents=(declined,))) == []
    late = replace(declined, waited_s=draining.ASK_AGAIN_S)
    assert asked(next_steps(replace(base, residents=(late,)))) == [("w0", "drain")]


def test_the_preview_names_where_each_process_would_go_and_how_long_it_takes() -> None:
    found = preview([tenant(workers=2, servers=1)], [offer()], worker_s=20.0, server_s=30.0)
    assert [(move.role, move.machine, move.sentence) for move in found.moves] == [
        ("worker", 2, "moves to m2"),
        ("worker", 2, "moves to m2"),
        ("server", 2, "moves to m2"),
    ]
    assert found.seconds == 30.0


def test_the_preview_reports_who_waits_for_a_slot_and_who_stays() -> None:
    full = preview([tenant(workers=1, servers=1)], [offer(workers=0, servers=0)])
    assert [move.sentence for move in full.moves] == [
        "leaves, and starts again when a slot is free on another machine",
        "ends: its blocks move to the other servers",
    ]
    alone = preview([replace(tenant(workers=1), workers=1)], [offer()])
    assert (alone.seconds, [move.sentence for move in alone.stays]) == (None, [draining.ONLY_WORKER])
    wrong_labels = preview([replace(tenant(workers=1), labels={"gpu": "a100"})], [offer()])
    assert wrong_labels.moves[0].machine is None


class Cluster:
    """Plays the engine: each request takes effect after some passes."""

    def __init__(self, workers: int, servers: int, away: tuple[int, int], least: int, slots: tuple[int, int]) -> None:
        self.here = {("worker", index): Stage.STAYS for index in range(workers)}
        self.here |= {("server", index): Stage.STAYS for index in range(servers)}
        self.residents = {key: Resident(role=key[0], index=key[1]) for key in self.here}  # type: ignore[arg-type]
        self.away_workers, self.away_servers = away
        self.least, self.free_workers, self.free_servers = least, *slots

    def running(self, role: str) -> int:
        here = sum(each.role == role and each.runs_here for each in self.residents.values())
        return here + (self.away_workers if role == "worker" else self.away_servers)

    def step(self) -> int:
        view = Tenant(
            job=1,
            runs=True,
            residents=tuple(each for each in self.residents.values() if each.stage is not Stage.MOVED),
            least=self.least,
            workers=self.running("worker"),
            servers=self.running("server"),
            free_servers=self.free_servers,
        )
        steps = next_steps(view)
        for each in steps:
            key = (each.resident.role, each.resident.index)
            new = replace(each.resident, stage=each.stage)
            if each.ask == "drain":
                new = replace(new, runs_here=False, holds_here=False)
            elif each.ask == "add":
                self.free_servers, self.away_servers = self.free_servers - 1, self.away_servers + 1
            elif each.ask == "include" and self.free_workers:
                self.free_workers, self.away_workers = self.free_workers - 1, self.away_workers + 1
                new = replace(new, runs_elsewhere=True)
            self.residents[key] = new  # type: ignore[index]
            assert self.running("worker") >= min(self.least, 1)
        return len(steps)


@given(
    st.integers(0, 6),
    st.integers(0, 4),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.integers(1, 4),
)
def test_a_machine_becomes_empty_whenever_its_processes_have_somewhere_to_go(
    workers: int, servers: int, away: tuple[int, int], least: int
) -> None:
    if workers + away[0] <= least:
        return
    cluster = Cluster(workers, servers, away, least, (workers, servers))
    for _ in range(4 * (workers + servers) + 4):
        assert cluster.running("worker") >= least
        assert cluster.running("server") >= min(1, servers)
        if not cluster.step():
            break
    assert not any(each.runs_here for each in cluster.residents.values())
    assert cluster.running("worker") == workers + away[0]
