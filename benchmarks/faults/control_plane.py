"""``manage.py bench faults``: faults of a control plane, and whether anything was lost, duplicated, or evicted.

Simulated trainers over real websockets, a real Redis with an append-only file, Celery, uvicorn and the database; faults
and combinations of policies are drawn from a seed. Recovery is timed from when a fault is over (see ``injection``)
until every worker of every job has had an answer to a report that it sent afterwards.
"""

import asyncio
import json
import os
import random
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from asgiref.sync import sync_to_async

from benchmarks.database.postgres import INSTALL, postgres_folder, running_postgres
from benchmarks.faults.checks import judge
from benchmarks.faults.injection import ServiceFaults
from benchmarks.faults.services import Services, Settings
from benchmarks.faults.simulated_processes import Records, ResilientAgent
from benchmarks.live.simulated_jobs import join, submit
from controlplane.core.events import StopRequested
from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.runtime import log, names
from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.processes import run_command
from controlplane.runtime.redis import shared

PLAN: Final = "PACELINE_FAULT_PLAN"
"""Environment variable: the address and the options of the control plane to start; it contains a password."""

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
"""Combinations of policies that need different kinds of orders. Those with long grants (``asp`` on shared data) are
excluded: their workers are answered only every other second even without faults.
"""

START: Final = "the start"
CONTINUES_S: Final = 300.0
"""After this long a job counts as stuck; on a busy machine services take long to start, and logs to be replayed."""

SETTLED_S: Final = 180.0
STARTUP_S: Final = 1_800.0
DEFAULT_S: Final = 300.0
LOOK_S: Final = 0.1


class Plan(msgspec.Struct, kw_only=True, frozen=True):
    """The options of the run."""

    settings: Settings
    minutes: float
    seed: int
    faults: int = 10**9
    kinds: list[str] = []
    """Only faults with a name that contains one of these; empty: all."""


def run(options: Namespace) -> dict[str, Any]:
    """Prepare Redis and database, and measure in a process with their settings.

    Raises:
        CannotStart: if something that is needed is not there.
    """
    minutes = options.minutes or (options.seconds or DEFAULT_S) / 60
    with TemporaryDirectory(prefix="paceline-faults-") as folder, _database(options.database == "postgres") as database:
        settings = Settings(folder=folder, database=database, append_only=True)
        plan = Plan(
            settings=settings, minutes=minutes, seed=options.seed, faults=options.faults, kinds=list(options.kinds)
        )
        environment = settings.environment | {PLAN: msgspec.json.encode(plan).decode()}
        said = run_command(
            "the measurement",
            [*MANAGE, "bench", "faults", "--within", PLAN],
            environment=environment,
            folder=CHECKOUT,
            seconds=minutes * 60 + STARTUP_S,
        )
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


def measure(_: str) -> dict[str, Any]:
    """The run itself, in a process with the control plane's settings."""
    plan = msgspec.json.decode(os.environ[PLAN], type=Plan)
    services = Services(plan.settings)
    try:
        services.start_all()
        return asyncio.run(Run(plan, services).run())
    finally:
        services.stop_all()
        _keep(services)


def _note(line: str) -> None:
    """For observers: ``PACELINE_FAULTS_KEPT`` names a folder for the results of each fault."""
    if folder := os.environ.get(KEPT):
        with Path(folder, "faults.log").open("a") as file:
            file.write(f"{line}\n")


def _keep(services: Services) -> None:
    """For debugging: logs and database go to the same folder."""
    if folder := os.environ.get(KEPT):
        for path in (*services.plane.logs.iterdir(), *services.plane.folder.glob("*.sqlite3*")):
            Path(folder, path.name).write_bytes(path.read_bytes())


class Run:
    """One run, from the submission of its jobs to the verdict."""

    def __init__(self, plan: Plan, services: Services) -> None:
        self._plan, self._services, self._records = plan, services, Records()
        self._chance = random.Random(plan.seed)
        self._times: dict[str, list[float]] = {}
        self._failures: list[str] = []
        self._combined = self._chance.sample(sorted(COMBINATIONS), JOBS)
        self._jobs: list[int] = []
        self._stalled_s = 0.0
        """The longest time for which the simulated workers' event loop was blocked: from 4 s on they would count as
        lost.
        """

    async def run(self) -> dict[str, Any]:
        """The result, for scripts."""
        base = self._services.plane.url.replace("http://", "ws://")
        credential = await sync_to_async(join)("faults")
        # Jobs are submitted before there are slots: one that scales out would take those of the next.
        for name in self._combined:
            self._jobs.append(await sync_to_async(submit)(WORKERS, COMBINATIONS[name], servers=SERVERS))
        slots, server_slots = JOBS * WORKERS, JOBS * (SERVERS + 1)
        agent = ResilientAgent(
            base, credential, slots=slots, server_slots=server_slots, records=self._records, seed=self._plan.seed
        )
        running = asyncio.create_task(agent.run())
        watching = asyncio.create_task(self._watch_loop())
        try:
            await self._go_on(time.monotonic(), START)
            await self._inject(ServiceFaults(self._services, agent, self._chance))
            await self._settle(agent)
        finally:
            running.cancel()
            watching.cancel()
            await asyncio.gather(running, watching, return_exceptions=True)
        verdict = await sync_to_async(judge)(self._jobs, self._records)
        self._failures += verdict.failures + self._records.violations + agent.failures
        return {
            "seed": self._plan.seed,
            "jobs": dict(zip(self._jobs, self._combined, strict=True)),
            "database": "postgres" if self._plan.settings.database else "sqlite",
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

    async def _inject(self, faults: ServiceFaults) -> None:
        until, queue, done = time.monotonic() + self._plan.minutes * 60, list[str](), 0
        wanted = self._plan.kinds or [""]
        kinds = [kind for kind in sorted(faults.kinds) if any(part in kind for part in wanted)]
        while time.monotonic() < until and done < self._plan.faults and not self._failures:
            queue = queue or self._chance.sample(kinds, len(kinds))
            kind = queue.pop()
            await asyncio.sleep(self._chance.uniform(0.2, 1.5))
            await faults.kinds[kind]()
            await self._go_on(faults.over_s, kind)
            self._failures += [f"after {kind}: {said}" for said in self._services.ended()]
            done += 1

    async def _go_on(self, since: float, kind: str) -> None:
        """Wait until every worker has an answer to a report that it sent since then."""
        everybody = [(job, rank) for job in self._jobs for rank in range(WORKERS)]
        answered, answered_at = self._records.answered, self._records.answered_at
        while waiting := [who for who in everybody if answered.get(who, 0.0) <= since]:
            if time.monotonic() - since > CONTINUES_S:
                named = ", ".join(f"w{rank} of job {job}" for job, rank in waiting)
                self._failures.append(f"after {kind}: {named} did not continue within {CONTINUES_S:.0f} s")
                return
            await asyncio.sleep(0.01)
        took_s = max(answered_at[who] for who in everybody) - since
        if kind != START:
            self._times.setdefault(kind, []).append(took_s)
            _note(f"{kind}: {took_s:.2f} s")

    async def _settle(self, agent: ResilientAgent) -> None:
        """Stop reports, wait until all are durable, stop the jobs, and wait until their logs are copied completely."""
        self._records.over = True
        await self._until("all sent messages are durable", lambda: not _unacknowledged(agent))
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


def _unacknowledged(agent: ResilientAgent) -> int:
    return sum(socket.unacknowledged for socket in list(agent.sockets.values()))


def _summary(times: list[float]) -> dict[str, Any]:
    if not times:
        return {"count": 0, "median_s": 0.0, "worst_s": 0.0}
    return {"count": len(times), "median_s": statistics.median(times), "worst_s": max(times)}


def table(document: dict[str, Any]) -> str:
    """The results as a table."""
    lines = [f"{'fault':34}{'count':>7}{'recovery: median':>18}{'worst':>10}"]
    for kind, found in [*document["kinds"].items(), ("all", document["all"])]:
        lines.append(f"{kind:34}{found['count']:7}{found['median_s']:16.2f} s{found['worst_s']:8.2f} s")
    verdict = document["verdict"]
    lines.append(f"jobs: {'; '.join(document['jobs'].values())}")
    lines.append(
        f"{document['database']}, seed {document['seed']}: {verdict['sent']:,} reports sent, {verdict['rows']:,} rows, "
        f"{verdict['lost']} lost, {verdict['doubled']} doubled, {len(verdict['evicted'])} evicted; "
        f"{verdict['decisions']:,} decisions replayed, {sum(verdict['incarnations'].values())} new incarnations; "
        f"the simulated workers' event loop was blocked for {document['stalled_s']:.2f} s at most"
    )
    return "\n".join(lines)
