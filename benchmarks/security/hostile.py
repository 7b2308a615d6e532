"""``manage.py bench hostile``: anonymous clients and a malicious machine, while a job of another machine trains.

Its rate, answers and memory are compared with a phase without attacks. The job trains at an emulated speed; each of
``attacks.ATTACKS`` runs in turn, from a separate process. All of it is on loopback, bounded in number and in time.
"""

import http.client
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import TimeoutError as Overdue
from contextlib import closing, contextmanager
from multiprocessing import get_context
from typing import Any, Final

import msgspec
import psutil

from benchmarks.faults.injection import processes_of
from benchmarks.faults.progress import Progress
from benchmarks.live.cluster import POOL, BenchCluster, running_cluster
from benchmarks.live.measuring import seconds_of
from benchmarks.live.timing import percentile
from benchmarks.live.usage import memory_mb
from benchmarks.security.attacks import ATTACKS, is_ready, perform
from benchmarks.security.context import AttackContext, AttackResult
from controlplane.protocol.messages import ProcessName
from controlplane.runtime.embedded.errors import CannotStart

VICTIM, ATTACKER = "victim", "attacker"
"""The labels of the machines that train, and of the attacker's."""

SPEED: Final = 160.0
BATCH: Final = 16
WORKERS, SERVERS = 2, 1
QUIET_S: Final = 12.0
PAUSE_S: Final = 1.0
"""Between two attacks."""

SETTLE_S: Final = 5.0
"""Before memory is looked at for the last time."""

SLACK: Final = 1.3
"""For attacks that take longer than they were given: the job must not end before."""

BEGIN_S: Final = 120.0
END_S: Final = 90.0
LONGEST: Final = 8.0
"""An attack may take so many times its time before it is given up on."""

PROBE_S: Final = 0.05
PATIENCE_S: Final = 20.0
LEAST_RATE: Final = 0.8
"""Target: of the undisturbed rate, under each attack."""
MOST_HEALTHZ_S: Final = 0.5
"""Target: for the slowest answer."""
MOST_GROWTH, MOST_GROWTH_MB = 0.1, 24.0
"""Target: a service may not grow by more than both."""


def grown(memory_mb: Mapping[str, tuple[float, float]]) -> list[str]:
    """A sentence for each process whose memory grew by more than both limits; MB before and after, by name."""
    return [
        f"{name} grew from {before:.0f} to {after:.0f} MB"
        for name, (before, after) in memory_mb.items()
        if after - before > max(MOST_GROWTH * before, MOST_GROWTH_MB)
    ]


class Phase(msgspec.Struct, kw_only=True, frozen=True):
    """One attack, or the time without before."""

    name: str
    seconds: float
    iterations_per_s: float
    healthz_s: list[float]
    """How long each answer took; ``PATIENCE_S`` where none came."""
    answers: dict[str, int] = {}
    """What the attacker got."""


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """The results of all phases."""

    phases: list[Phase]
    """The first is without attacks."""
    memory_mb: dict[str, tuple[float, float]]
    """Of each process, before and after."""
    lost: list[str]
    """What ended or stalled that should not have."""

    @property
    def failures(self) -> list[str]:
        """The missed targets."""
        quiet, found = self.phases[0], list(self.lost)
        if not quiet.iterations_per_s:
            return [*found, "nothing was trained before the attacks: there is no rate to compare with"]
        for phase in self.phases[1:]:
            part = phase.iterations_per_s / quiet.iterations_per_s
            if part < LEAST_RATE:
                found.append(f"{phase.name}: training at {part:.2f} of its rate, expected {LEAST_RATE:g}")
            if max(phase.healthz_s) > MOST_HEALTHZ_S:
                slowest = f"the slowest /healthz took {max(phase.healthz_s):.2f} s"
                found.append(f"{phase.name}: {slowest}, expected {MOST_HEALTHZ_S:g} s")
        return [*found, *grown(self.memory_mb)]


def run(options: Namespace) -> dict[str, Any]:
    """Train without attacks, then under each attack for so many seconds."""
    with (
        running_cluster() as cluster,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as attacker,
        probing(cluster.plane.port) as probes,
    ):
        result = Trial(cluster, attacker, probes, seconds=seconds_of(options)).run()
    document: dict[str, Any] = msgspec.to_builtins(result)
    return document | {"failures": result.failures}


Probes = list[tuple[float, float]]
"""When each question was asked, on the monotonic clock, and how long its answer took."""


@contextmanager
def probing(port: int) -> Iterator[Probes]:
    """Ask ``/healthz`` again and again while the block lasts, each time on a new connection, as a balancer does."""
    probes = Probes()

    def ask() -> float:
        began = time.monotonic()
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
                connection.request("GET", "/healthz")
                if connection.getresponse().status == http.client.OK:
                    return time.monotonic() - began
        except (OSError, http.client.HTTPException):
            pass
        return PATIENCE_S

    with _repeating(lambda: probes.append((time.monotonic(), ask()))):
        yield probes


@contextmanager
def watching(cluster: BenchCluster, job: int) -> Iterator[list[float]]:
    """When iterations were complete, on the monotonic clock; the job's log is trimmed, so it is looked at often."""
    times: list[float] = []
    with closing(cluster.connect_redis()) as client:
        progress = Progress(client, job)
        with _repeating(lambda: times.extend(progress.since_last_look())):
            yield times


@contextmanager
def _repeating(act: Callable[[], object]) -> Iterator[None]:
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(PROBE_S):
            act()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2 * PATIENCE_S)


class Trial:
    """One run, from the jobs' submission to what is left of them."""

    def __init__(
        self,
        cluster: BenchCluster,
        attacker: ProcessPoolExecutor,
        probes: Probes,
        *,
        seconds: float,
    ) -> None:
        self._cluster, self._attacker, self._probes, self._seconds = cluster, attacker, probes, seconds
        self._lost: list[str] = []

    def run(self) -> Result:
        """The baseline, the attacks, and the count."""
        self._cluster.join(VICTIM, pool=VICTIM, speeds=[SPEED] * WORKERS, server_slots=SERVERS)
        lasts_s = QUIET_S + len(ATTACKS) * (self._seconds + PAUSE_S) * SLACK + SETTLE_S
        job = self._cluster.submit(spec_of("victim", workers=WORKERS, stop={"seconds": lasts_s}), pool=VICTIM)
        begun = self._cluster.wait(job, lambda found: found["iteration"] > 0, seconds=BEGIN_S)
        if not begun.get("iteration"):
            raise CannotStart(f"The job did not begin within {BEGIN_S:.0f} s: {begun.get('reason')}")
        context = self._context(job)
        self._attacker.submit(is_ready).result(BEGIN_S)
        lives = self._lives(job)
        with watching(self._cluster, job) as reached:
            phases = [self._phase("no attack", reached, lambda: self._rest(QUIET_S))]
            watched = self._watched(job)
            before = {name: memory_mb(process) for name, process in watched.items()}
            for name in ATTACKS:
                context = self._attack(name, context, reached, phases)
        self._rest(SETTLE_S)
        memory = {name: (before[name], memory_mb(process)) for name, process in watched.items()}
        self._lost += [f"{name} was ended, and started again" for name, (_, after) in memory.items() if not after]
        self._count(job, context.own_job, lives)
        return Result(phases=phases, memory_mb=memory, lost=self._lost)

    def _context(self, job: int) -> AttackContext:
        """What the attacker is given: a machine of his own with a job of his own, and what he could have guessed."""
        token = self._cluster.ask("POST", "agents/enrolment-tokens", json={"labels": {POOL: ATTACKER}})["token"]
        enrolled = self._cluster.ask("POST", "agents/enrol", json={"token": token, "name": ATTACKER})
        rows = self._cluster.ask("GET", f"jobs/{job}/processes")["results"]
        names = [ProcessName(job=job, role=r["role"], index=r["index"], instance=r["instance"]) for r in rows]
        return AttackContext(
            url=self._cluster.plane.url,
            credential=enrolled["credential"],
            victims=names,
            data_ports=sorted({port for server in processes_of(job, "s") for port in ports_of(server)}),
            number=1,
            own_job=self._cluster.submit(spec_of("attacker", workers=1, stop={"iterations": 10**6}), pool=ATTACKER),
            seconds=self._seconds,
        )

    def _attack(self, name: str, context: AttackContext, reached: list[float], phases: list[Phase]) -> AttackContext:
        """Let it happen; what the attacker knows then."""
        result = AttackResult(number=context.number)

        def happen() -> None:
            nonlocal result
            try:
                result = self._attacker.submit(perform, name, context).result(LONGEST * self._seconds)
            except (Overdue, OSError) as error:
                self._lost.append(f"{name}: the attack did not come to its end ({type(error).__name__})")

        phase = self._phase(name, reached, happen)
        phases.append(msgspec.structs.replace(phase, answers=dict(sorted(result.answers.items()))))
        return msgspec.structs.replace(context, number=result.number, key=result.key or context.key)

    def _phase(self, name: str, reached: list[float], happen: Callable[[], None]) -> Phase:
        began = time.monotonic()
        happen()
        self._rest(max(0.0, self._seconds - (time.monotonic() - began)))
        over = time.monotonic()
        self._rest(PAUSE_S)  # what was complete by then is known by now
        return Phase(
            name=name,
            seconds=over - began,
            iterations_per_s=sum(began <= at <= over for at in list(reached)) / (over - began),
            healthz_s=[took for at, took in list(self._probes) if began <= at <= over] or [PATIENCE_S],
        )

    def _rest(self, seconds: float) -> None:
        self._cluster.supervisor.interruption.pause(seconds)

    def _lives(self, job: int) -> set[tuple[str, int, str]]:
        rows = self._cluster.ask("GET", f"jobs/{job}/processes")["results"]
        return {(row["role"], row["index"], row["instance"]) for row in rows}

    def _watched(self, job: int) -> dict[str, psutil.Process]:
        services = {name: psutil.Process(pid) for name, pid in self._cluster.processes.items()}
        workers, servers = (processes_of(job, role) for role in "ws")
        return services | {"worker": workers[0], "server": servers[0]}

    def _count(self, job: int, attackers: int, lives: set[tuple[str, int, str]]) -> None:
        """The job ends by itself without restarts, the attacker's job ends on request, and a new one trains."""
        ended = self._cluster.wait(job, lambda found: bool(found["is_over"]), seconds=END_S)
        if ended.get("state") != "succeeded":
            self._lost.append(f"the job is {ended.get('state')}: {ended.get('reason')}")
        if again := self._lives(job) - lives:
            self._lost.append(f"processes of the job were started again: {sorted(again)}")
        self._cluster.client.post(f"jobs/{attackers}/actions/stop")
        stopped = self._cluster.wait(attackers, lambda found: bool(found["is_over"]), seconds=END_S)
        if not stopped.get("is_over"):
            self._lost.append(f"the attacker's own job cannot be stopped: it is {stopped.get('state')}")
        after = self._cluster.submit(spec_of("after", workers=WORKERS, stop={"iterations": 10}), pool=VICTIM)
        trained = self._cluster.wait(after, lambda found: bool(found["is_over"]), seconds=END_S)
        if trained.get("state") != "succeeded":
            self._lost.append(f"a job submitted afterwards is {trained.get('state')}: {trained.get('reason')}")


def table(document: dict[str, Any]) -> str:
    """For people."""
    result = msgspec.convert({key: document[key] for key in ("phases", "memory_mb", "lost")}, Result)
    quiet = result.phases[0].iterations_per_s
    lines = [f"{'':28}{'iterations/s':>14}{'of its rate':>13}{'/healthz p50':>14}{'p95':>8}{'max':>8}"]
    for phase in result.phases:
        took = phase.healthz_s
        p50, p95, most = (1000 * each for each in (percentile(took, 0.5), percentile(took, 0.95), max(took)))
        rate = f"{phase.iterations_per_s:14.1f}{phase.iterations_per_s / quiet:13.2f}" if quiet else f"{'none':>27}"
        lines.append(f"{phase.name:28}{rate}{p50:11.0f} ms{p95:5.0f} ms{most:5.0f} ms")
    for phase in result.phases[1:]:
        lines.append(f"{phase.name}: " + "; ".join(f"{count} x {what}" for what, count in phase.answers.items()))
    memory = (f"{name} {before:.0f} -> {after:.0f}" for name, (before, after) in result.memory_mb.items())
    return "\n".join([*lines, f"memory in MB: {', '.join(memory)}"])


def spec_of(name: str, *, workers: int, stop: dict[str, Any]) -> dict[str, Any]:
    """A small job."""
    return {
        "name": name,
        "workload": {"name": "softmax-regression", "dataset": "digits"},
        "workers": workers,
        "servers": SERVERS,
        "batch_size": BATCH,
        "evaluate": {"every": 500},
        "stop": stop,
        "seed": 7,
    }


def ports_of(server: psutil.Process) -> Sequence[int]:
    """Where a parameter server listens."""
    found = server.net_connections(kind="tcp4")
    return [each.laddr.port for each in found if each.status == psutil.CONN_LISTEN]
