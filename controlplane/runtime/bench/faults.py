"""``manage.py bench faults``: a control plane under fire, and whether anything was lost, doubled, or evicted.

Simulated trainers over real websockets, a real Redis with an append-only file, Celery, uvicorn and the database; faults
and what the jobs combine are drawn from a seed. The time to go on is taken from when a fault is over (``harm`` says
when that is) until every worker of every job has had an answer to a report that it sent afterwards.
"""

import asyncio
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from asgiref.sync import sync_to_async

from controlplane.core.events import StopRequested
from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.runtime import log, names
from controlplane.runtime.bench.crowds import join, submit
from controlplane.runtime.bench.harm import Harm
from controlplane.runtime.bench.hosts import Host
from controlplane.runtime.bench.parts import Ground, Parts
from controlplane.runtime.bench.postgres import INSTALL, postgres_folder, running_postgres
from controlplane.runtime.bench.trainers import Memory
from controlplane.runtime.bench.verdict import judge
from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.processes import run_command
from controlplane.runtime.redis import shared

GROUND: Final = "PACELINE_FAULT_GROUND"
"""Environment variable: where the control plane is to run, and what is asked for."""

KEPT: Final = "PACELINE_FAULTS_KEPT"
"""Environment variable: a folder for logs and the like."""

JOBS: Final = 3
WORKERS: Final = 4
SERVERS: Final = 2

LB_BSP: Final = {"name": "lb-bsp-cpu", "predictor": "memoryless"}
COMBINATIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "lb-bsp": {"batching": LB_BSP},
    "lb-bsp, psld": {"batching": LB_BSP, "placement": {"name": "psld"}},
    "lb-bsp, backup, psld-lpt": {
        "batching": LB_BSP,
        "barrier": {"name": "backup", "backups": 1},
        "placement": {"name": "psld-lpt"},
    },
    "aggressive, exchange": {"barrier": {"name": "aggressive"}, "data": {"name": "exchange"}},
    "asp, rotation": {"barrier": {"name": "asp"}, "data": {"name": "rotation"}},
    "lb-bsp-linear, pssp": {"batching": {"name": "lb-bsp-linear"}, "barrier": {"name": "pssp"}},
    "ssp, psld": {"barrier": {"name": "ssp"}, "placement": {"name": "psld"}},
}
"""Choices under each of which workers obey orders of another kind. Those with long leave (``asp`` on shared data) are
not among them: they are answered every other second even in peace."""

START: Final = "the start"
GOES_ON_S: Final = 300.0
"""After this long a job counts as stuck; on a busy machine services take long to start, and logs to be replayed."""

SETTLED_S: Final = 180.0
BESIDES_S: Final = 1_800.0
LOOK_S: Final = 0.1


class Asked(msgspec.Struct, kw_only=True, frozen=True):
    """What the run was asked for."""

    ground: Ground
    minutes: float
    seed: int
    faults: int = 10**9
    kinds: list[str] = []
    """Only those whose name contains one of these; all where there are none."""


def run(asked: Callable[[Ground], Asked], *, postgres: bool, append_only: bool = True) -> dict[str, Any]:
    """Set the ground up, and measure in a process with its settings.

    Raises:
        CannotStart: if something that is needed is not there.
    """
    with TemporaryDirectory(prefix="paceline-faults-") as folder, _database(postgres) as database:
        told = asked(Ground(folder=folder, database=database, append_only=append_only))
        environment = told.ground.environment | {GROUND: msgspec.json.encode(told).decode()}
        limit_s = told.minutes * 60 + BESIDES_S
        command = [*MANAGE, "bench", "faults", "--within", GROUND]
        said = run_command("the measurement", command, environment=environment, folder=CHECKOUT, seconds=limit_s)
    document: dict[str, Any] = json.loads(said.splitlines()[-1])
    return document


@contextmanager
def _database(postgres: bool) -> Iterator[str]:
    if not postgres:
        yield ""
        return
    binaries = postgres_folder()
    if binaries is None:
        raise CannotStart(INSTALL)
    with running_postgres(binaries) as url:
        yield url


def measure() -> dict[str, Any]:
    """The run itself, in a process whose settings are those of the control plane."""
    asked = msgspec.json.decode(os.environ[GROUND], type=Asked)
    parts = Parts(asked.ground)
    try:
        parts.start_all()
        return asyncio.run(Run(asked, parts).run())
    finally:
        parts.stop_all()
        _keep(parts)


def _note(line: str) -> None:
    """For whoever looks on: ``PACELINE_FAULTS_KEPT`` names a folder for what came of each fault."""
    if folder := os.environ.get(KEPT):
        with Path(folder, "faults.log").open("a") as file:
            file.write(f"{line}\n")


def _keep(parts: Parts) -> None:
    """For whoever wants to know why: logs and database go to the same folder."""
    if folder := os.environ.get(KEPT):
        for path in (*parts.plane.logs.iterdir(), *parts.plane.folder.glob("*.sqlite3*")):
            Path(folder, path.name).write_bytes(path.read_bytes())


class Run:
    """One run, from the submission of its jobs to the verdict."""

    def __init__(self, asked: Asked, parts: Parts) -> None:
        self._asked, self._parts, self._memory = asked, parts, Memory()
        self._chance = random.Random(asked.seed)
        self._times: dict[str, list[float]] = {}
        self._failures: list[str] = []
        self._combined = self._chance.sample(sorted(COMBINATIONS), JOBS)
        self._jobs: list[int] = []
        self._stalled_s = 0.0
        """The longest time for which the trainers' own loop stood still: from 4 s on they seem dead by our doing."""

    async def run(self) -> dict[str, Any]:
        """What came of it, for scripts."""
        base = self._parts.plane.url.replace("http://", "ws://")
        credential = await sync_to_async(join)("faults")
        for name in self._combined:  # before there are slots: a job that scales out would take those of the next one
            self._jobs.append(await sync_to_async(submit)(WORKERS, COMBINATIONS[name], servers=SERVERS))
        slots, server_slots = JOBS * WORKERS, JOBS * (SERVERS + 1)
        host = Host(
            base, credential, slots=slots, server_slots=server_slots, memory=self._memory, seed=self._asked.seed
        )
        running = asyncio.create_task(host.run())
        watching = asyncio.create_task(self._watch_loop())
        try:
            await self._go_on(time.monotonic(), START)
            await self._strike(Harm(self._parts, host, self._chance))
            await self._settle(host)
        finally:
            running.cancel()
            watching.cancel()
            await asyncio.gather(running, watching, return_exceptions=True)
        verdict = await sync_to_async(judge)(self._jobs, self._memory)
        self._failures += verdict.failures + self._memory.disobeyed
        return {
            "seed": self._asked.seed,
            "jobs": dict(zip(self._jobs, self._combined, strict=True)),
            "database": "postgres" if self._asked.ground.database else "sqlite",
            "kinds": {kind: _summary(times) for kind, times in sorted(self._times.items())},
            "all": _summary([each for times in self._times.values() for each in times]),
            "verdict": msgspec.to_builtins(verdict),
            "stalled_s": self._stalled_s,
            "failures": self._failures,
        }

    async def _watch_loop(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(LOOK_S)
            self._stalled_s = max(self._stalled_s, time.monotonic() - before - LOOK_S)

    async def _strike(self, harm: Harm) -> None:
        until, queue, done = time.monotonic() + self._asked.minutes * 60, list[str](), 0
        wanted = self._asked.kinds or [""]
        kinds = [kind for kind in sorted(harm.kinds) if any(part in kind for part in wanted)]
        while time.monotonic() < until and done < self._asked.faults and not self._failures:
            queue = queue or self._chance.sample(kinds, len(kinds))
            kind = queue.pop()
            await asyncio.sleep(self._chance.uniform(0.2, 1.5))
            await harm.kinds[kind]()
            await self._go_on(harm.over_s, kind)
            self._failures += [f"after {kind}: {said}" for said in self._parts.ended()]
            done += 1

    async def _go_on(self, since: float, kind: str) -> None:
        """Wait until every worker has an answer to what it sent since then."""
        everybody = [(job, rank) for job in self._jobs for rank in range(WORKERS)]
        answered, answered_at = self._memory.answered, self._memory.answered_at
        while waiting := [who for who in everybody if answered.get(who, 0.0) <= since]:
            if time.monotonic() - since > GOES_ON_S:
                named = ", ".join(f"w{rank} of job {job}" for job, rank in waiting)
                self._failures.append(f"after {kind}: {named} did not go on within {GOES_ON_S:.0f} s")
                return
            await asyncio.sleep(0.01)
        took_s = max(answered_at[who] for who in everybody) - since
        if kind != START:
            self._times.setdefault(kind, []).append(took_s)
            _note(f"{kind}: {took_s:.2f} s")

    async def _settle(self, host: Host) -> None:
        """Nobody reports any more, all becomes durable, the jobs are stopped, and their logs are copied whole."""
        self._memory.over = True
        await self._until("everything that was said is durable", lambda: not _unacknowledged(host))
        await sync_to_async(self._stop_jobs)()
        await self._until("the end of every job", self._all_over)

    def _stop_jobs(self) -> None:
        for job in Job.objects.filter(pk__in=self._jobs).order_by("pk"):
            try:
                log.append_event(job.pk, StopRequested(actor="bench"))
            except log.LogClosed:
                self._failures.append(f"{job}: {job.state}, {job.reason}")

    async def _until(self, what: str, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + SETTLED_S
        while not await sync_to_async(holds)():
            if time.monotonic() > deadline:
                self._failures.append(f"{what}: not within {SETTLED_S:.0f} s")
                return
            await asyncio.sleep(0.1)

    def _all_over(self) -> bool:
        ended = Job.objects.filter(pk__in=self._jobs, state=JobState.CANCELLED).count()
        return ended == len(self._jobs) and not shared().smembers(names.LIVE_JOBS)


def _unacknowledged(host: Host) -> int:
    return sum(voice.unacknowledged for voice in list(host.voices.values()))


def _summary(times: list[float]) -> dict[str, Any]:
    if not times:
        return {"count": 0, "median_s": 0.0, "worst_s": 0.0}
    return {"count": len(times), "median_s": statistics.median(times), "worst_s": max(times)}


def table(document: dict[str, Any]) -> str:
    """The figures, for people."""
    lines = [f"{'fault':34}{'count':>7}{'goes on: median':>18}{'worst':>10}"]
    for kind, told in [*document["kinds"].items(), ("all", document["all"])]:
        lines.append(f"{kind:34}{told['count']:7}{told['median_s']:16.2f} s{told['worst_s']:8.2f} s")
    verdict = document["verdict"]
    lines.append(f"jobs: {'; '.join(document['jobs'].values())}")
    lines.append(
        f"{document['database']}, seed {document['seed']}: {verdict['sent']:,} reports sent, {verdict['rows']:,} rows, "
        f"{verdict['lost']} lost, {verdict['doubled']} doubled, {len(verdict['evicted'])} evicted; "
        f"{verdict['decisions']:,} decisions replayed alike, {sum(verdict['incarnations'].values())} new incarnations; "
        f"the trainers' own loop stood still for {document['stalled_s']:.2f} s at most"
    )
    return "\n".join(lines)
