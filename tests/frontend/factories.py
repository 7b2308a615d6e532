"""Rows of jobs as ingest would have written them: four uneven machines, even shares first, balanced ones later."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User

from controlplane.core.events import ControlPlaneResumed, WorkerMessageReceived
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.models import Agent, AgentSample, Reservation
from controlplane.fleet.samples import sample_of
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.protocol.measurements import OF_MACHINES
from controlplane.protocol.messages import Exchanged, IterationReport
from controlplane.protocol.spec import parse_spec, spec_document
from controlplane.runtime import log
from controlplane.runtime.models import Forecast
from controlplane.telemetry.logged import record_logged
from controlplane.telemetry.models import Cursor, Evaluation, LogLine, RawEvent, Simulation
from tests.telemetry.logging_reports import report
from tests.telemetry.reports import OTHERS, Report, store_reports

START = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
SPEEDS = (1000.0, 1000.0, 500.0, 250.0)
EVEN = (64, 64, 64, 64)
BALANCED = (93, 93, 47, 23)


def spec(*, policy: str = "lb-bsp-cpu", workers: int = 4, iterations: int = 400, **more: Any) -> dict[str, Any]:
    """A spec document of the demo's job, as it is kept."""
    document = {
        "name": "digits",
        "workload": {"name": "softmax-regression", "dataset": "digits"},
        "workers": workers,
        "servers": 2,
        "batch_size": 64,
        "synchronization": {"batching": {"name": policy}, "barrier": {"name": "bsp"}},
        "stop": {"iterations": iterations, "accuracy": 0.95},
        "seed": 7,
    }
    return spec_document(parse_spec(document | more))


def make_simulation() -> Simulation:
    """One that a run can be of."""
    return Simulation.objects.create(scenario="demo", policies=["bsp"], seed=1)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How one iteration went: its shares and its length in seconds."""

    shares: tuple[int, ...]
    push_s: float = 0.004
    pull_s: float = 0.003

    @property
    def busy_s(self) -> list[float]:
        return [share / SPEEDS[rank % 4] + self.push_s + self.pull_s for rank, share in enumerate(self.shares)]

    @property
    def length_s(self) -> float:
        return max(self.busy_s) + 0.001


def make_job(*, state: JobState = JobState.RUNNING, user: User | None = None, **more: Any) -> Job:
    """A job that began to run at START."""
    fields = {"name": "digits", "spec": spec(), "state": state, "started_at": START} | more
    job = Job.objects.create(submitted_by=user, **fields)
    Job.objects.filter(pk=job.pk).update(created_at=START - timedelta(seconds=4), state_since=START)
    job.refresh_from_db()
    return job


def make_agents(count: int = 4, slots: int = 1, *, first: int = 0) -> list[Agent]:
    """Machines of uneven speed, online, with one sample of their load."""
    agents = [
        Agent(
            name=f"machine-{index}",
            credential_digest=f"{index:064d}",
            state=Agent.State.ONLINE,
            slots=[{"emulate": {"samples_per_second": SPEEDS[index % 4]}}] * slots,
            labels={"class": "fast" if index < 2 else "slow"},
            cpu_count=4,
            memory_bytes=8 * 2**30,
            server_slots=1,
            seen_at=START,
        )
        for index in range(first, first + count)
    ]
    Agent.objects.bulk_create(agents)
    AgentSample.objects.bulk_create(
        sample_of(agent.pk, START + timedelta(seconds=10 * k), _sampled(index, k))
        for index, agent in enumerate(agents)
        for k in range(6)
    )
    return agents


def _sampled(index: int, k: int) -> dict[str, float]:
    """Each number of a machine."""
    rates = {each.name: (1 + place) * 1e6 * (1 + k % 3) for place, each in enumerate(OF_MACHINES)}
    return rates | {"cpu": 0.2 + 0.2 * index + 0.02 * k, "memory": 0.4}


def make_processes(job: Job, agents: list[Agent], shares: tuple[int, ...] = BALANCED) -> None:
    """One worker on each agent and two servers."""
    common = {"job": job, "state": ProcessState.READY, "state_since": START, "started_at": START}
    for rank, share in enumerate(shares):
        agent = agents[rank % len(agents)]
        emulate = {"samples_per_second": SPEEDS[rank % 4]}
        Process.objects.create(
            role="worker",
            index=rank,
            instance=f"w{rank}-a",
            agent=agent,
            share=share,
            emulate=emulate,
            iteration=60,
            **common,
        )
        Reservation.objects.get_or_create(
            agent=agent, role="worker", slot=rank // len(agents), defaults={"job_id": job.pk, "index": rank}
        )
    for index in range(2):
        load = {
            "blocks": 2 - index,
            "held_bytes": 6 - 4 * index << 20,
            "push_s": 0.004,
            "pull_s": 0.003 + 0.002 * index,
        }
        Process.objects.create(
            role="server", index=index, instance=f"s{index}-a", agent=agents[index], **common, **load
        )


def make_reports(job: Job, paces: list[Pace], *, rank_count: int = 4, first: int = 0) -> datetime:
    """One report of each worker for each pace; the time at which the last iteration ended."""
    at, rows = START + timedelta(seconds=first), []
    for iteration, pace in enumerate(paces, start=first):
        at += timedelta(seconds=pace.length_s)
        for rank in range(rank_count):
            rows.append(_report(job, rank, iteration, pace, at))
    store_reports(rows)
    job.iteration = first + len(paces)
    job.samples = sum(sum(pace.shares) for pace in paces)
    job.busy_s = sum(row.compute_s + row.push_s + row.pull_s for row in rows)
    job.waiting_s = sum(row.waiting_s for row in rows)
    job.coordination_s = sum(row.coordination_s for row in rows)
    job.save()
    Cursor.objects.update_or_create(job=job, stream="events", defaults={"position": f"{job.iteration}-0"})
    return at


def _report(job: Job, rank: int, iteration: int, pace: Pace, at: datetime) -> Report:
    busy = pace.busy_s[rank]
    return Report(
        job_id=job.pk,
        rank=rank,
        instance=f"w{rank}-a",
        generation=1,
        iteration=iteration,
        at=at,
        samples=pace.shares[rank],
        position=iteration * 256,
        loss=2.3 / (1 + 0.08 * iteration) + 0.02 * rank,
        compute_s=busy - pace.push_s - pace.pull_s,
        push_s=pace.push_s,
        pull_s=pace.pull_s,
        waiting_s=max(0.0, pace.length_s - busy - 0.001),
        coordination_s=0.001,
        cpu=0.5,
        memory=0.3,
        overran=False,
        data_s=0.0,
        others=measured_by(rank, iteration),
    )


def measured_by(rank: int, iteration: int) -> dict[str, float]:
    """Each number that has no column of its own, of a worker on a GPU: typical ones, and half of what may be."""
    wave = (iteration * (rank + 1)) % 10
    typical = {
        "gpu_utilization": 0.99 - 0.02 * wave,
        "gpu_memory": (30 + 4 * rank + 0.1 * wave) * 1e9,
        "gpu_temperature": 55.0 + 4 * rank + 0.5 * wave,
        "gpu_power": 400.0 - 30 * rank + 6 * wave,
    }
    return {name: typical.get(name, 0.5) for name in OTHERS}


def make_scores(job: Job, *, every: int, until: int, seconds: float = 0.1) -> None:
    """Scores of the held-out split, rising."""
    Evaluation.objects.bulk_create(
        Evaluation(
            job=job,
            iteration=iteration,
            at=START + timedelta(seconds=iteration * seconds),
            elapsed_s=iteration * seconds,
            loss=2.3 / (1 + 0.1 * iteration),
            accuracy=1 - 0.9 / (1 + 0.15 * iteration),
            samples=360,
        )
        for iteration in range(0, until + 1, every)
    )


def make_decisions(job: Job, count: int = 1) -> None:
    """A life-cycle move, a flag and ``count`` share decisions."""
    rows = [
        ("move-job", "all 4 workers are ready", None, {"state": "running", "awaited": ""}),
        ("set-roster", "first roster: 4 workers", 0, {"generation": 1, "first_iteration": 0, "ranks": [0, 1, 2, 3]}),
        ("set-shares", "even split to begin with", 0, _shares(EVEN, 0, {})),
        (
            "raise-flag",
            flag_sentence(),
            12,
            {"flag": "w3:compute", "rank": 3, "kind": "compute", "persistence": "lasting"},
        ),
    ]
    rows += [
        ("set-shares", "in proportion to predicted speed", 10 + k, _shares(BALANCED, 10 + k, dict(enumerate(SPEEDS))))
        for k in range(count)
    ]
    rows.append(("set-placement", "blocks in turn", 0, _placed(0, 1)))
    rows.append(("set-placement", "s1 is slower: one block moves from s1 to s0", 30, _placed(0, 0)))
    for sequence, (kind, reason, iteration, payload) in enumerate(rows):
        make_decision(job, sequence, kind, payload, reason=reason, iteration=iteration)


def make_decision(
    job: Job, sequence: int, kind: str, payload: dict[str, Any], *, reason: str = "", iteration: int | None = None
) -> Decision:
    """One command of the engine."""
    return Decision.objects.create(
        job=job,
        incarnation=0,
        sequence=sequence,
        at=START + timedelta(seconds=sequence),
        kind=kind,
        cause=f"{1772443800000 + sequence}-0",
        reason=reason,
        iteration=iteration,
        payload=payload,
    )


def make_entry(job: Job, stream_id: str, kind: str = "control-plane-resumed") -> None:
    """An entry of the job's log that says nothing of exchanges."""
    payload = log.encode_event(ControlPlaneResumed(who="a gateway"))
    RawEvent.objects.create(job=job, incarnation=0, stream_id=stream_id, kind=kind, payload=payload)


def make_exchanges(job: Job, rank: int, exchanges: list[Exchanged]) -> None:
    """The next entry of the job's log: a report of these."""
    number = RawEvent.objects.filter(job=job).count() + 1
    report = IterationReport(
        number=number,
        generation=1,
        iteration=number,
        samples=8,
        loss=0.1,
        compute_s=0.1,
        push_s=0.01,
        pull_s=0.0,
        waiting_s=0.0,
        coordination_s=0.0,
        position=0,
        exchanges=exchanges,
    )
    payload = log.encode_event(WorkerMessageReceived(rank=rank, instance="a", message=report))
    RawEvent.objects.create(job=job, incarnation=0, stream_id=f"{number}-0", kind="report", payload=payload)


def _shares(shares: tuple[int, ...], iteration: int, speeds: dict[int, float]) -> dict[str, Any]:
    return {
        "type": "set-shares",
        "generation": 1,
        "iteration": iteration,
        "policy": "lb-bsp-cpu",
        "shares": {str(rank): share for rank, share in enumerate(shares)},
        "speeds": {str(rank): speed for rank, speed in speeds.items()},
        "predicted_s": 0.093,
    }


def _placed(*servers: int) -> dict[str, Any]:
    """Two blocks of 4 and 2 MiB that moved, and a third of 2 MiB on s1."""
    sizes = (1 << 20, 1 << 19, 1 << 19)
    ends = [sum(sizes[: place + 1]) for place in range(3)]
    blocks = [
        {"index": place, "start": end - size, "stop": end, "server": server}
        for place, (size, end, server) in enumerate(zip(sizes, ends, (*servers, 1), strict=True))
    ]
    return {"version": 1 + servers.count(0) // 2, "policy": "psld", "blocks": blocks}


def flag_sentence() -> str:
    """What the detector says of the slowest machine."""
    return "w3 computes 3.9 times as long per sample as the median worker (4.0 ms vs 1.0 ms), in 10 of 10 iterations"


def make_flag(job: Job, **more: Any) -> Flag:
    """An open flag on the slowest worker."""
    values = {
        "key": "w3:compute",
        "rank": 3,
        "kind": "compute",
        "persistence": "lasting",
        "sentence": flag_sentence(),
        "evidence": {"ratio": 3.9, "iterations": 10},
        "opened_at": START + timedelta(seconds=3),
    }
    return Flag.objects.create(job=job, **values | more)


def make_lines(job: Job) -> None:
    """What two workers and a server wrote, one line of it long."""
    lines = [
        ("worker", 0, "info", "connected to the control plane"),
        ("server", 0, "warning", "a peer went away: connection reset"),
        ("worker", 3, "output", "x" * 300),
        ("worker", 3, "error", "ValueError: no such data set"),
    ]
    LogLine.objects.bulk_create(
        LogLine(job=job, role=role, index=index, instance=f"{role[0]}{index}-a", at=START, level=level, text=text)
        for role, index, level, text in lines
    )


def demo_job(*, user: User | None = None, before: int = 10, after: int = 50) -> Job:
    """A running job that has been balanced: everything that a job page shows is there."""
    job = make_job(user=user)
    make_processes(job, make_agents())
    make_reports(job, [Pace(shares=EVEN)] * before + [Pace(shares=BALANCED)] * after)
    make_scores(job, every=20, until=before + after)
    make_decisions(job, count=3)
    make_flag(job)
    make_lines(job)
    job.loss, job.accuracy = 0.31, 0.912
    job.save()
    return job


def played_job(*, user: User | None = None) -> Job:
    """The demo's job, played otherwise a moment ago, with predictors that were scored twice."""
    job = demo_job(user=user)
    answer = {
        "fit": {"predicted_s": 0.104, "recorded_s": 0.1},
        "recorded": alternative("recorded", 0.0),
        "alternatives": [
            alternative("without w3", 0.3, kind="machines"),
            alternative("one more like w0", 0.24, kind="machines"),
            alternative("lb-bsp-linear", 0.12),
            alternative("asp", 0.1, unfinished=2),
            alternative("twice the bandwidth", 0.06, kind="machines"),
            alternative("without w0", -0.4, kind="machines"),
            alternative("backup", -0.08),
        ],
    }
    Forecast.objects.create(job=job, answer=answer, took_s=7.2, made_at=START + timedelta(minutes=1))
    for sequence, (iteration, ema, narx) in enumerate([(20, 0.09, 0.2), (40, 0.07, 0.03)], start=100):
        scores = {"ema": {"relative": ema}, "narx": {"relative": narx}}
        make_decision(job, sequence, "score-predictors", {"iteration": iteration, "acting": "ema", "scores": scores})
    record_logged(job.pk, [report(iteration, lr=0.1 / (iteration + 1)) for iteration in range(60)])
    return job


def alternative(name: str, saved: float, **more: Any) -> dict[str, Any]:
    """One other way, as ``manage.py whatif --json`` has it."""
    document = {
        "name": name,
        "iteration_s": 0.1 * (1 - saved),
        "waiting": 0.1,
        "saved": saved,
        "samples": 1.0,
        "unfinished": 0,
    }
    return document | {"saved_low": saved - 0.05, "saved_high": saved + 0.05} | more


def attached_job(*, state: JobState = JobState.RUNNING, user: User | None = None, agreed: int = 6) -> Job:
    """The demo's job under a launcher; its ranks took the balanced shares ``agreed`` iterations after the decision."""
    document = {"name": "resnet", "launch": "attached", "workers": 4, "batch_size": 64}
    document["synchronization"] = {"batching": {"name": "lb-bsp-cpu"}}
    job = make_job(user=user, state=state, name="resnet", spec=spec_document(parse_spec(document)), launch="attached")
    for rank, share in enumerate(BALANCED):
        Process.objects.create(
            job=job,
            role="worker",
            index=rank,
            instance=f"w{rank}-a",
            share=share,
            iteration=60,
            counts_from=0,
            state=ProcessState.READY,
            state_since=START,
            started_at=START,
            reason=f"rank {rank} of 4 said hello on gpu-{rank // 2}, started by torchrun",
            environment={
                "machine": f"gpu-{rank // 2}",
                "device": f"cuda:{rank % 2}, NVIDIA L4",
                "launcher": "torchrun",
                "pid": f"{4000 + rank}",
                "paceline": "0.9.0",
                "python": "3.12.4",
                "torch": "2.7.1",
            },
        )
    make_reports(job, [Pace(shares=EVEN)] * (10 + agreed) + [Pace(shares=BALANCED)] * (50 - agreed))
    make_decision(job, 0, "move-job", {"state": "running", "awaited": ""}, reason="4 ranks are connected")
    roster = {"generation": 1, "first_iteration": 0, "ranks": [0, 1, 2, 3]}
    make_decision(job, 1, "set-roster", roster, reason="4 ranks are connected, from iteration 0 on", iteration=0)
    make_decision(job, 2, "set-shares", _shares(EVEN, 0, {}), reason="even split to begin with", iteration=0)
    speeds = dict(enumerate(SPEEDS))
    make_decision(job, 3, "set-shares", _shares(BALANCED, 10, speeds), reason="by predicted speed", iteration=10)
    job.generation = 1
    job.save()
    return job
