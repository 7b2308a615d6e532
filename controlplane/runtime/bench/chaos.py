"""Kills, stops and partitions at random while a job trains, and what came of it.

The faults strike workers, servers, an agent with all that it runs, the links of machines to the control plane, those of
workers to servers, and the control plane's own services. They are chosen by a seed; when exactly one strikes is up to
the machine, so a run is not repeatable to the letter. Afterwards the log must hold every report once, its replay must
give the stored decisions, and the model must be as good as one that was trained in peace.
"""

import json
import random
import statistics
import subprocess
from functools import partial
from typing import Any, Final

import httpx
import msgspec
import psutil
import redis

from controlplane.core.events import WorkerHeard
from controlplane.protocol.messages import IterationReport
from controlplane.runtime.bench import strikes
from controlplane.runtime.bench.crew import Crew
from controlplane.runtime.bench.place import Options, Place
from controlplane.runtime.bench.plane import Bench
from controlplane.runtime.bench.progress import FLOWING_S, Progress, Watch
from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.joining import let_in
from controlplane.runtime.embedded.processes import Service, run_command

SPEED: Final = 160.0
FAST: Final = 1e6
DISTURBED: Final = "disturbed"
QUIET: Final = "quiet"
BEGUN: Final = 5

FIRST_JOB: Final = 1
BATCH: Final = 16
WORKERS: Final = 4
ITERATION_S: Final = BATCH / SPEED
PAUSE_S: Final = (0.5, 2.0)
"""Between the watch over one fault and the next."""

WATCH_S: Final = 8.0
"""How long each fault is watched: as long as the longest of them lasts."""

LOOK_S: Final = 0.1

MOST_S: Final = 5.0
"""Bar: how long a fault may keep a job from going on."""

GOES_ON_S: Final = 60.0
"""A fault after which the job has not gone on for so long has ended it."""

END_S: Final = 300.0
MOST_POINTS: Final = 1.0
"""Bar: percentage points of accuracy between the disturbed and the undisturbed run."""

SERVICES: Final = ("decisions", "history", "web")


class Struck(msgspec.Struct, kw_only=True, frozen=True):
    """One fault, and when the job went on."""

    at_s: float
    kind: str
    whom: str
    seconds: float | None
    """The longest time without a newly complete iteration; None: no more came in time."""
    seen_s: float | None
    """As ``seconds``, of what people are told: that comes from the database."""


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """What came of all of them."""

    seed: int
    seconds: float
    struck: list[Struck]
    state: str
    reason: str
    iterations: int
    rollbacks: int
    restarts: int
    reports: int
    lost: int
    doubled: int
    replay: str
    """"" where the replay gave the stored decisions, else what it said."""
    accuracy: float
    undisturbed: float

    @property
    def failures(self) -> list[str]:
        """What should not be."""
        found = []
        if self.state != "succeeded":
            found.append(f"the job ended {self.state}: {self.reason}")
        if stuck := [each.kind for each in self.struck if each.seconds is None]:
            found.append(f"the job did not go on within {GOES_ON_S:.0f} s after: {', '.join(stuck)}")
        late = [f"{each.kind} ({each.seconds:.2f} s)" for each in self.struck if (each.seconds or 0.0) > MOST_S]
        if late:
            found.append(f"the job went on after more than {MOST_S:.0f} s after: {', '.join(late)}")
        if self.lost or self.doubled:
            found.append(f"{self.lost} reports were lost, {self.doubled} doubled")
        if self.replay:
            found.append(f"the replay differs: {self.replay}")
        if abs(self.accuracy - self.undisturbed) * 100 > MOST_POINTS:
            found.append(f"accuracy {self.accuracy:.4f}, undisturbed {self.undisturbed:.4f}")
        return found


def run(bench: Bench, *, seconds: float, seed: int) -> dict[str, Any]:
    """Train, disturb, and compare."""
    access = let_in("chaos", role="admin", environment=bench.environment)
    headers = {"Authorization": f"Bearer {access.token}"}
    wire = strikes.Wire(("127.0.0.1", bench.plane.port))
    data = strikes.DataWires(partial(strikes.processes_of, FIRST_JOB, "s"))
    try:
        with httpx.Client(base_url=bench.plane.url, headers=headers, timeout=10.0, trust_env=False) as client:
            crew = Crew(bench, client)
            join = partial(crew.join, room=DISTURBED, workers=3, speed=SPEED, announced=strikes.ANNOUNCED)
            join("steady", servers=2)
            behind = f"http://127.0.0.1:{wire.port}"
            shaky = join("shaky", servers=1, url=behind)
            trial = Trial(crew, seconds=seconds, seed=seed)
            struck = trial.disturb(shaky, wire, data)
            job = trial.await_end()
            undisturbed = trial.undisturbed()
    finally:
        wire.close()
        data.close()
    counted = _count(bench, trial.job)
    result = Result(
        seed=seed,
        seconds=seconds,
        struck=struck,
        state=job["state"],
        reason=job["reason"],
        iterations=job["iteration"],
        accuracy=job["accuracy"] or 0.0,
        undisturbed=undisturbed,
        replay=_replay(bench, trial.job),
        **counted,
    )
    document: dict[str, Any] = msgspec.to_builtins(result)
    return document | {"failures": result.failures}


class Trial:
    """The job that is disturbed."""

    def __init__(self, crew: Crew, *, seconds: float, seed: int) -> None:
        self._crew, self._bench, self._seconds = crew, crew.bench, seconds
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
        self.job = crew.submit(self._spec, room=DISTURBED)
        self._progress = Progress(_redis_of(self._bench), self.job)

    def disturb(self, shaky: Service, wire: strikes.Wire, data: strikes.DataWires) -> list[Struck]:
        """One fault after the other for ``seconds``; each waits until the job has gone on after the one before."""
        self._crew.wait(self.job, lambda job: job["iteration"] >= BEGUN, seconds=GOES_ON_S)
        began, struck, chosen = strikes.now(), [], self._faults(shaky, wire, data)
        while strikes.now() < began + self._seconds and not self._crew.look(self.job).get("is_over"):
            self._bench.supervisor.interruption.pause(self._chance.uniform(*PAUSE_S))
            self._bench.supervisor.check()
            fault = strikes.choose(chosen, self._chance)
            before = strikes.now()
            whom = fault.strike()
            at = strikes.now() if fault.waits else before
            if whom is not None:
                seconds, seen_s = self._went_on(at)
                struck.append(Struck(at_s=at - began, kind=fault.kind, whom=whom, seconds=seconds, seen_s=seen_s))
        return struck

    def await_end(self) -> dict[str, Any]:
        """The job when it is over."""
        return self._crew.wait(self.job, lambda job: bool(job["is_over"]), seconds=END_S)

    def undisturbed(self) -> float:
        """Final accuracy of the same job in peace, on a machine that has no reason to be slow."""
        self._crew.join("quiet", room=QUIET, workers=WORKERS, servers=2, speed=FAST)
        job = self._crew.submit(self._spec, room=QUIET)
        done = self._crew.wait(job, lambda job: bool(job["is_over"]), seconds=END_S)
        return float(done.get("accuracy") or 0.0)

    def _faults(self, shaky: Service, wire: strikes.Wire, data: strikes.DataWires) -> list[strikes.Fault]:
        chance = self._chance
        workers, servers = (partial(strikes.processes_of, self.job, role) for role in "ws")
        both = partial(strikes.processes_of, self.job, "ws")
        agent = partial(self._service, shaky.name)
        return [
            strikes.Fault(kind="kill worker", strike=strikes.kill_one(workers, chance), weight=3),
            strikes.Fault(kind="kill server", strike=strikes.kill_one(servers, chance), weight=2),
            strikes.Fault(kind="stop worker briefly", strike=strikes.stop_one(workers, chance, strikes.BRIEF_S)),
            strikes.Fault(
                kind="stop worker for long", strike=strikes.stop_one(workers, chance, strikes.LONG_S), weight=2
            ),
            strikes.Fault(kind="stop server for long", strike=strikes.stop_one(servers, chance, strikes.LONG_S)),
            strikes.Fault(kind="stop process briefly", strike=strikes.stop_one(both, chance, strikes.BRIEF_S)),
            strikes.Fault(kind="kill agent", strike=strikes.kill_one(agent, chance)),
            strikes.Fault(kind="cut link briefly", strike=strikes.cut(wire, chance, strikes.BRIEF_S)),
            strikes.Fault(kind="cut link for long", strike=strikes.cut(wire, chance, strikes.LONG_S)),
            *(
                strikes.Fault(kind=f"cut data {told}", strike=strikes.cut_data(data, chance, span), waits=True)
                for told, span in (("briefly", strikes.BRIEF_S), ("for long", strikes.LONG_S))
            ),
            *(
                strikes.Fault(kind=f"kill {name}", strike=strikes.kill_one(partial(self._service, name), chance))
                for name in SERVICES
            ),
        ]

    def _service(self, name: str) -> list[psutil.Process]:
        """The service of that name, as it runs now."""
        running = [each for each in self._bench.supervisor.services if each.name == name and not each.is_over()]
        return [psutil.Process(each.process.pid) for each in running]

    def _went_on(self, at: float) -> tuple[float | None, float | None]:
        """The longest time without a newly complete iteration, by the log and by what people see.

        Watched for ``WATCH_S``, and on until iterations flow again.
        """
        goes_on, seen, before = Watch(at), Watch(at), None
        while (now := strikes.now()) < at + GOES_ON_S:
            goes_on.see(*(moment for moment in self._progress.since_last_look() if moment >= at))
            job = self._crew.look(self.job)
            if job.get("is_over"):
                seen.see(now)
                return goes_on.longest, seen.longest
            if job.get("state") == "running":
                if before is not None and job["iteration"] > before:
                    seen.see(now)
                before = job["iteration"]
            if now > at + WATCH_S and now - min(goes_on.last, seen.last) < FLOWING_S:
                return goes_on.longest, seen.longest
            self._bench.supervisor.interruption.pause(LOOK_S)
        return goes_on.longest_by(now), seen.longest_by(now)


def _redis_of(bench: Bench) -> redis.Redis:
    return redis.Redis.from_url(bench.environment["REDIS_URL"], protocol=2, single_connection_client=True)


def measure(place: Place) -> dict[str, Any]:
    """In a process with the settings of the disturbed control plane: what its database has of the job."""
    from controlplane.jobs.models import Decision, Process
    from controlplane.runtime.log import decode_event
    from controlplane.telemetry.models import RawEvent

    job = place.options.jobs
    reported: dict[str, dict[int, set[int]]] = {}
    for payload in RawEvent.objects.filter(job_id=job, kind="report").values_list("payload", flat=True):
        event = decode_event(bytes(payload))
        if isinstance(event, WorkerHeard) and isinstance(event.message, IterationReport):
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
    """For people."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in document["struck"]:
        kinds.setdefault(each["kind"], []).append(each)
    lines = [
        f"{document['seconds']:.0f} s with seed {document['seed']}: {len(document['struck'])} faults, "
        f"{document['restarts']} new lives, {document['rollbacks']} returns to a checkpoint",
        f"{'time to go on':28}{'faults':>8}{'median':>10}{'worst':>10}{'seen: median':>16}{'worst':>10}",
    ]
    for kind, found in [*sorted(kinds.items()), ("all", document["struck"])]:
        goes_on, seen = ([each[name] for each in found] for name in ("seconds", "seen_s"))
        lines.append(
            f"  {kind:26}{len(found):8}{_median(goes_on):>10}{_worst(goes_on):>10}{_median(seen):>16}{_worst(seen):>10}"
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


def _count(bench: Bench, job: int) -> dict[str, Any]:
    place = Place(base=bench.base, echo=bench.echo, processes={}, options=Options(seconds=0.0, jobs=job))
    command = [*MANAGE, "bench", "chaos", "--within", place.encode()]
    found = run_command("the count", command, environment=bench.environment, folder=CHECKOUT, seconds=120)
    counted: dict[str, Any] = json.loads(found)
    return counted


def _replay(bench: Bench, job: int) -> str:
    """What the replay of the job's log says where it differs."""
    command = [*MANAGE, "replay", str(job)]
    done = subprocess.run(
        command, env=dict(bench.environment), cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=300
    )
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()[-500:]
