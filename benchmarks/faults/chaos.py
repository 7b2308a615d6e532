"""``manage.py bench chaos``: kills, pauses and partitions at random while a job trains.

Faults are injected into workers, servers, an agent with all its processes, the links of machines to the control plane,
those of workers to servers, and the control plane's own services. They are chosen by a seed; their exact time is up to
the machine, so a run is not exactly repeatable. Afterwards the log must contain every report once, its replay must
give the stored decisions, and the model must be as good as one trained without faults.
"""

import json
import random
import statistics
import subprocess
import time
from argparse import Namespace
from functools import partial
from typing import Any, Final

import msgspec

from benchmarks.faults import injection
from benchmarks.faults.links import ANNOUNCED, DataLinkProxies, LinkProxy
from benchmarks.faults.progress import FLOWING_S, Progress, Watch
from benchmarks.live.cluster import BenchCluster, running_cluster
from benchmarks.live.measuring import seconds_of
from controlplane.core.events import WorkerMessageReceived
from controlplane.protocol.messages import IterationReport
from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.processes import Service, run_command

SPEED: Final = 160.0
FAST: Final = 1e6
FAULTY: Final = "disturbed"
QUIET: Final = "quiet"
STARTED_AT: Final = 5

FIRST_JOB: Final = 1
BATCH: Final = 16
WORKERS: Final = 4
ITERATION_S: Final = BATCH / SPEED
PAUSE_S: Final = (0.5, 2.0)
"""Pause between two faults."""

WATCH_S: Final = 8.0
"""How long to observe each fault: as long as the longest one lasts."""

LOOK_S: Final = 0.1

MOST_S: Final = 5.0
"""Target: how long a fault may interrupt the progress of a job."""

CONTINUES_S: Final = 60.0
"""Without progress for this long after a fault, the job counts as stuck."""

END_S: Final = 300.0
COUNT_S: Final = 120.0
MOST_POINTS: Final = 1.0
"""Target: percentage points of accuracy between the disturbed and the undisturbed run."""

SERVICES: Final = ("decisions", "history", "web")


class Injected(msgspec.Struct, kw_only=True, frozen=True):
    """One fault, and how long the job was interrupted."""

    at_s: float
    kind: str
    whom: str
    seconds: float | None
    """The longest time without a newly complete iteration; None if there was none in time."""
    seen_s: float | None
    """As ``seconds``, for the progress that pages show, which comes from the database."""


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """The results of all faults."""

    seed: int
    seconds: float
    faults: list[Injected]
    state: str
    reason: str
    iterations: int
    rollbacks: int
    restarts: int
    reports: int
    lost: int
    doubled: int
    replay: str
    """"" if the replay gave the stored decisions, else its message."""
    accuracy: float
    undisturbed: float

    @property
    def failures(self) -> list[str]:
        """Missed targets, as sentences."""
        found = []
        if self.state != "succeeded":
            found.append(f"the job ended {self.state}: {self.reason}")
        if stuck := [each.kind for each in self.faults if each.seconds is None]:
            found.append(f"the job made no progress within {CONTINUES_S:.0f} s after: {', '.join(stuck)}")
        late = [f"{each.kind} ({each.seconds:.2f} s)" for each in self.faults if (each.seconds or 0.0) > MOST_S]
        if late:
            found.append(f"the job made progress after more than {MOST_S:.0f} s after: {', '.join(late)}")
        if self.lost or self.doubled:
            found.append(f"{self.lost} reports were lost, {self.doubled} doubled")
        if self.replay:
            found.append(f"the replay differs: {self.replay}")
        if abs(self.accuracy - self.undisturbed) * 100 > MOST_POINTS:
            found.append(f"accuracy {self.accuracy:.4f}, undisturbed {self.undisturbed:.4f}")
        return found


def run(options: Namespace) -> dict[str, Any]:
    """Train, inject faults, and compare."""
    seconds = seconds_of(options)
    with running_cluster() as cluster:
        proxy = LinkProxy(("127.0.0.1", cluster.plane.port))
        data = DataLinkProxies(partial(injection.processes_of, FIRST_JOB, "s"))
        try:
            speeds, encrypts = [SPEED] * 3, options.encrypt
            join = partial(cluster.join, pool=FAULTY, speeds=speeds, announced=ANNOUNCED, encrypts=encrypts)
            join("steady", server_slots=2)
            shaky = join("shaky", server_slots=1, url=f"http://127.0.0.1:{proxy.port}")
            trial = Trial(cluster, seconds=seconds, seed=options.seed)
            faults = trial.inject(shaky, proxy, data)
            job = trial.await_end()
            undisturbed = trial.undisturbed()
        finally:
            proxy.close()
            data.close()
        return _document(cluster, trial.job, job, faults, undisturbed, seconds=seconds, seed=options.seed)


def _document(
    cluster: BenchCluster,
    number: int,
    job: dict[str, Any],
    faults: list[Injected],
    undisturbed: float,
    *,
    seconds: float,
    seed: int,
) -> dict[str, Any]:
    counted = _count(cluster, number)
    result = Result(
        seed=seed,
        seconds=seconds,
        faults=faults,
        state=job["state"],
        reason=job["reason"],
        iterations=job["iteration"],
        accuracy=job["accuracy"] or 0.0,
        undisturbed=undisturbed,
        replay=_replay(cluster, number),
        **counted,
    )
    document: dict[str, Any] = msgspec.to_builtins(result)
    return document | {"failures": result.failures}


class Trial:
    """The job that is disturbed."""

    def __init__(self, cluster: BenchCluster, *, seconds: float, seed: int) -> None:
        self._cluster, self._seconds = cluster, seconds
        self._chance = random.Random(seed)
        self._spec: dict[str, Any] = {
            "name": "chaos",
            "workload": {"name": "softmax-regression", "dataset": "digits"},
            "workers": WORKERS,
            "servers": 2,
            "batch_size": BATCH,
            "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
            "evaluate": {"every": 20},
            "checkpoint": {"every": 20},
            "elastic": {"restarts": 1000, "from_scratch": True},
            "stop": {"iterations": int(seconds / ITERATION_S)},
            "seed": seed,
        }
        self.job = cluster.submit(self._spec, pool=FAULTY)
        self._progress = Progress(cluster.connect_redis(), self.job)

    def inject(self, shaky: Service, proxy: LinkProxy, data: DataLinkProxies) -> list[Injected]:
        """Inject one fault after the other for ``seconds``; each after the job has recovered from the one before."""
        self._cluster.wait(self.job, lambda job: job["iteration"] >= STARTED_AT, seconds=CONTINUES_S)
        began, faults, chosen = time.monotonic(), [], self._faults(shaky, proxy, data)
        while time.monotonic() < began + self._seconds and not self._cluster.look(self.job).get("is_over"):
            self._cluster.supervisor.interruption.pause(self._chance.uniform(*PAUSE_S))
            self._cluster.supervisor.check()
            fault = injection.choose(chosen, self._chance)
            before = time.monotonic()
            whom = fault.inject()
            at = time.monotonic() if fault.waits else before
            if whom is not None:
                seconds, seen_s = self._went_on(at)
                faults.append(Injected(at_s=at - began, kind=fault.kind, whom=whom, seconds=seconds, seen_s=seen_s))
        return faults

    def await_end(self) -> dict[str, Any]:
        """The job when it is over."""
        return self._cluster.wait(self.job, lambda job: bool(job["is_over"]), seconds=END_S)

    def undisturbed(self) -> float:
        """Final accuracy of the same job without faults."""
        self._cluster.join("quiet", pool=QUIET, speeds=[FAST] * WORKERS, server_slots=2)
        job = self._cluster.submit(self._spec, pool=QUIET)
        done = self._cluster.wait(job, lambda job: bool(job["is_over"]), seconds=END_S)
        return float(done.get("accuracy") or 0.0)

    def _faults(self, shaky: Service, proxy: LinkProxy, data: DataLinkProxies) -> list[injection.Fault]:
        chance = self._chance
        workers, servers = (partial(injection.processes_of, self.job, role) for role in "ws")
        both = partial(injection.processes_of, self.job, "ws")
        agent = partial(self._cluster.running, shaky.name)
        return [
            injection.Fault(kind="kill worker", inject=injection.kill_one(workers, chance), weight=3),
            injection.Fault(kind="kill server", inject=injection.kill_one(servers, chance), weight=2),
            injection.Fault(kind="stop worker briefly", inject=injection.pause_one(workers, chance, injection.BRIEF_S)),
            injection.Fault(
                kind="stop worker for long", inject=injection.pause_one(workers, chance, injection.LONG_S), weight=2
            ),
            injection.Fault(kind="stop server for long", inject=injection.pause_one(servers, chance, injection.LONG_S)),
            injection.Fault(kind="stop process briefly", inject=injection.pause_one(both, chance, injection.BRIEF_S)),
            injection.Fault(kind="kill agent", inject=injection.kill_one(agent, chance)),
            injection.Fault(kind="cut link briefly", inject=injection.cut_link(proxy, chance, injection.BRIEF_S)),
            injection.Fault(kind="cut link for long", inject=injection.cut_link(proxy, chance, injection.LONG_S)),
            *(
                injection.Fault(kind=f"cut data {how}", inject=injection.cut_data(data, chance, span), waits=True)
                for how, span in (("briefly", injection.BRIEF_S), ("for long", injection.LONG_S))
            ),
            *(
                injection.Fault(
                    kind=f"kill {name}", inject=injection.kill_one(partial(self._cluster.running, name), chance)
                )
                for name in SERVICES
            ),
        ]

    def _went_on(self, at: float) -> tuple[float | None, float | None]:
        """The longest time without a newly complete iteration, by the log and by the pages.

        Observed for ``WATCH_S``, and until iterations are complete again.
        """
        continued, seen, before = Watch(at), Watch(at), None
        while (now := time.monotonic()) < at + CONTINUES_S:
            continued.see(*(moment for moment in self._progress.since_last_look() if moment >= at))
            job = self._cluster.look(self.job)
            if job.get("is_over"):
                seen.see(now)
                return continued.longest, seen.longest
            if job.get("state") == "running":
                if before is not None and job["iteration"] > before:
                    seen.see(now)
                before = job["iteration"]
            if now > at + WATCH_S and now - min(continued.last, seen.last) < FLOWING_S:
                return continued.longest, seen.longest
            self._cluster.supervisor.interruption.pause(LOOK_S)
        return continued.longest_by(now), seen.longest_by(now)


def measure(job_number: str) -> dict[str, Any]:
    """Read the job from the database; runs in a process with the settings of the disturbed control plane."""
    from controlplane.jobs.models import Decision, Process
    from controlplane.runtime.log import decode_event
    from controlplane.telemetry.models import RawEvent

    job = int(job_number)
    reported: dict[str, dict[int, set[int]]] = {}
    for payload in RawEvent.objects.filter(job_id=job, kind="report").values_list("payload", flat=True):
        event = decode_event(bytes(payload))
        if isinstance(event, WorkerMessageReceived) and isinstance(event.message, IterationReport):
            said = reported.setdefault(event.instance, {}).setdefault(event.message.iteration, set())
            said.add(event.message.number)
    gaps = sum(max(seen) - min(seen) + 1 - len(seen) for seen in reported.values() if seen)
    again = sum(len(said) - 1 for seen in reported.values() for said in seen.values())
    return {
        "reports": sum(len(seen) for seen in reported.values()),
        "lost": gaps,
        "doubled": again,
        "rollbacks": Decision.objects.filter(job_id=job, kind="roll-back").count(),
        "restarts": Process.objects.filter(job_id=job).count() - WORKERS - 2,
    }


def table(document: dict[str, Any]) -> str:
    """The results as a table."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in document["faults"]:
        kinds.setdefault(each["kind"], []).append(each)
    lines = [
        f"{document['seconds']:.0f} s with seed {document['seed']}: {len(document['faults'])} faults, "
        f"{document['restarts']} restarts, {document['rollbacks']} rollbacks to a checkpoint",
        f"{'time to continue':28}{'faults':>8}{'median':>10}{'worst':>10}{'seen: median':>16}{'worst':>10}",
    ]
    for kind, found in [*sorted(kinds.items()), ("all", document["faults"])]:
        continued, seen = ([each[name] for each in found] for name in ("seconds", "seen_s"))
        lines.append(
            f"  {kind:26}{len(found):8}{_median(continued):>10}{_worst(continued):>10}"
            f"{_median(seen):>16}{_worst(seen):>10}"
        )
    lines.append(
        f"job {document['state']} after {document['iterations']} iterations; {document['reports']:,} reports, "
        f"{document['lost']} lost, {document['doubled']} doubled; the replay "
        + ("differs" if document["replay"] else "gives the stored decisions")
    )
    lines.append(f"accuracy {document['accuracy']:.4f}, undisturbed {document['undisturbed']:.4f}")
    return "\n".join(lines)


def _median(found: list[float | None]) -> str:
    known = [seconds for seconds in found if seconds is not None]
    return f"{statistics.median(known):.2f} s" if known else "never"


def _worst(found: list[float | None]) -> str:
    return "never" if None in found or not found else f"{max(each for each in found if each is not None):.2f} s"


def _count(cluster: BenchCluster, job: int) -> dict[str, Any]:
    command = [*MANAGE, "bench", "chaos", "--within", str(job)]
    found = run_command("the count", command, environment=cluster.environment, folder=CHECKOUT, seconds=COUNT_S)
    counted: dict[str, Any] = json.loads(found)
    return counted


def _replay(cluster: BenchCluster, job: int) -> str:
    """The message of the replay of the job's log if it differs."""
    command = [*MANAGE, "replay", str(job)]
    done = subprocess.run(
        command, env=dict(cluster.environment), cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=300
    )
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()[-500:]
