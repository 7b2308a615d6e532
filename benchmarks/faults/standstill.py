"""``manage.py bench standstill``: how long a job is stalled by events of its cluster, and what its page shows.

A real Ray cluster and a real Slurm cluster of emulated nodes on this machine, and a control plane as ``up`` starts it:
a Ray node is killed, a step is cancelled, a node is drained, a node is taken from a job that may be requeued.
"""

import json
import logging
import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
django.setup()

import msgspec  # noqa: E402

from benchmarks.tables import say  # noqa: E402
from tests.support import on_ray, slurm  # noqa: E402
from tests.support.slurm_user import User  # noqa: E402
from tests.support.stack import Stack, running_stack  # noqa: E402
from tests.support.waiting import eventually  # noqa: E402

LOOK_S: Final = 0.1
CALM_S: Final = 10.0
"""How long a job that continues is watched."""

LONGEST_S: Final = 240.0
SHOWN: Final = 12
NATIVE: Final[dict[str, Any]] = {"workers": 3, "servers": 1, "batch_size": 32, "stop": {"iterations": 1_000_000}}
ATTACHED: Final = [sys.executable, "-m", "tests.support.attached_script"]
SPEC: Final = """
name: digits
workload: {name: softmax-regression, dataset: digits}
workers: 2
servers: 1
batch_size: 16
stop: {iterations: 1000000}
checkpoint: {every: 10}
"""


class Stalled(msgspec.Struct, kw_only=True, frozen=True):
    """The result for one event."""

    what: str
    stalled_s: float | None
    """The longest time without a new iteration; None: the job ended."""
    whole_s: float
    """Time until everything was back, or the job had ended."""
    messages: list[str]
    """The messages on its page during that time, in order."""


class Eye:
    """Watches a job as its page does."""

    def __init__(self, stack: Stack, job: int) -> None:
        self._stack, self._job = stack, job
        self._began = self._moved = time.monotonic()
        self._iteration = stack.job(job)["iteration"]
        self.longest, self.messages, self.is_over = 0.0, list[str](), False

    def look(self) -> dict[str, Any]:
        """The job now."""
        found, now = self._stack.job(self._job), time.monotonic()
        self.longest = max(self.longest, now - self._moved)
        if found["iteration"] > self._iteration:
            self._moved, self._iteration = now, found["iteration"]
        self.is_over = found["is_over"]
        self._note("job", found["reason"] if self.is_over else (found["waiting"] or {}).get("sentence", ""))
        for row in self._stack.ask("GET", f"/api/v1/jobs/{self._job}/processes?page_size=100")["results"]:
            self._note(f"{row['role']} {row['index']}", row["reason"])
        return found

    def _note(self, subject: str, sentence: str) -> None:
        line = f"{subject}: {sentence}"
        if sentence and line not in self.messages:
            self.messages.append(line)

    def until(self, what: str, happened: Callable[[dict[str, Any]], Any]) -> "Stalled":
        """Watch the job until ``happened`` is true."""
        eventually(lambda: happened(self.look()), what=what, seconds=LONGEST_S, every=LOOK_S)
        stalled = None if self.is_over else self.longest
        return Stalled(what=what, stalled_s=stalled, whole_s=time.monotonic() - self._began, messages=self.messages)


def kill_a_ray_node(stack: Stack, cluster: on_ray.Cluster) -> Stalled:
    """Kill -9 of the raylet under one of three agents."""
    given = ("--name", "steady", "--label", "pool=steady", "--url", stack.url, "--detach", "--agents", "3")
    cluster.paceline("ray", "up", *given, PACELINE_API_TOKEN=stack.token)
    job = stack.submit(**NATIVE | {"labels": {"pool": "steady"}})["id"]
    stack.await_iteration(job, 50, seconds=120)
    members = json.loads(cluster.paceline("ray", "status", "--name", "steady", "--json"))["members"]
    node = next(each["node"] for each in members if each["name"] == "steady-2")
    eye = Eye(stack, job)
    cluster.kill(node)

    def is_back(_: dict[str, Any]) -> bool:
        rows = stack.ask("GET", "/api/v1/agents?page_size=100")["results"]
        agent = next(row for row in rows if row["name"] == "steady-2")
        processes = stack.ask("GET", f"/api/v1/jobs/{job}/processes?page_size=100")["results"]
        ready = sum(each["role"] == "worker" and each["state"] == "ready" for each in processes)
        return bool(agent["unverified_labels"].get("ray-node") != node[:SHOWN] and ready == NATIVE["workers"])

    found = eye.until("a Ray node is killed (native, 3 workers)", is_back)
    stack.stop(job)
    cluster.paceline("ray", "down", "--name", "steady", "--url", stack.url, PACELINE_API_TOKEN=stack.token)
    return found


def cancel_a_step_of_ranks(user: User, stack: Stack) -> Stalled:
    """``scancel JOB.0`` where srun has started attached ranks."""
    sent = user.submit("--nodes", "2", "--", *ATTACHED, iterations=100_000, speeds=[500.0, 500.0])
    user.await_iteration(5)
    eye = Eye(stack, sent.job)
    user.cluster.ask("scancel", f"{sent.slurm}.0")
    return eye.until("scancel of the step (attached, 2 ranks)", lambda job: job["is_over"])


def cancel_a_step_of_agents(user: User, stack: Stack) -> Stalled:
    """``scancel JOB.0`` where srun has started agents."""
    (user.folder / "job.yaml").write_text(SPEC)
    sent = user.submit("job.yaml", "--nodes", "2")
    stack.await_iteration(sent.job, 30, seconds=120)
    eye = Eye(stack, sent.job)
    user.cluster.ask("scancel", f"{sent.slurm}.0")
    return eye.until("scancel of the step (native, 2 agents)", lambda job: job["is_over"])


def drain_a_node(user: User, stack: Stack) -> Stalled:
    """``state=drain`` under a job that runs; another one waits for the node."""
    sent = user.submit("--nodes", "2", "--", *ATTACHED, iterations=100_000, speeds=[500.0, 500.0])
    user.await_iteration(5)
    nodes = user.cluster.job(sent.slurm)["NodeList"]
    eye, until = Eye(stack, sent.job), time.monotonic() + CALM_S
    user.cluster.ask("scontrol", "update", f"node={nodes}", "state=drain", "reason=maintenance")
    try:
        found = eye.until(f"a node is drained (attached, watched {CALM_S:.0f} s)", lambda _: time.monotonic() > until)
        waiting = user.submit("--nodes", "2", "--", *ATTACHED, iterations=10)
        row = eventually(
            lambda: next((line for line in user.run("status").stdout.splitlines() if "DRAINED" in line), ""),
            what="Slurm's reason",
            every=0.5,
        )
        user.run("cancel", str(waiting.job))
        stack.stop(sent.job)
        user.cluster.await_state(sent.slurm, "COMPLETED", "FAILED")
    finally:
        user.cluster.resume(nodes)
    return msgspec.structs.replace(
        found, messages=[f"paceline slurm status, of a job that waits: {row.split('Slurm: ')[1]}"]
    )


def take_a_node(user: User, stack: Stack) -> Stalled:
    """``state=down`` under a job with ``--requeue``, whose script saves after each iteration."""
    sent = user.submit(
        *("--nodes", "2", "--requeue", "--", *ATTACHED), iterations=100_000, speeds=[500.0, 500.0], saves=True
    )
    user.await_iteration(5)
    node = user.cluster.ask("scontrol", "show", "hostnames", user.cluster.job(sent.slurm)["NodeList"]).split()[-1]
    eye = Eye(stack, sent.job)
    reached = stack.job(sent.job)["iteration"]
    user.cluster.ask("scontrol", "update", f"node={node}", "state=down", "reason=lost")
    try:
        found = eye.until(
            f"a node is lost, with --requeue (attached; of it {slurm.WAIT_S + 1} s are Slurm's cred_expire)",
            lambda job: job["generation"] > 1 and job["iteration"] > reached + 5,
        )
        stack.stop(sent.job)
        user.cluster.await_state(sent.slurm, "COMPLETED", "FAILED")
    finally:
        user.cluster.resume(node)
    return found


@contextmanager
def user_of(cluster: slurm.Cluster, stack: Stack) -> Iterator[User]:
    """A user with a separate folder."""
    with TemporaryDirectory(prefix="paceline-") as folder:
        yield User(cluster, stack, Path(folder))


ON_SLURM: Final = {
    "step-of-ranks": cancel_a_step_of_ranks,
    "step-of-agents": cancel_a_step_of_agents,
    "drained-node": drain_a_node,
    "lost-node": take_a_node,
}


def measure(only: str | None) -> Iterator[Stalled]:
    """Measure each event in turn, with the clusters that it needs."""
    with TemporaryDirectory(prefix="paceline-") as folder, running_stack(Path(folder)) as stack:
        if on_ray.is_installed() and only in (None, "ray-node"):
            with on_ray.running_cluster(nodes=3, cpus=2) as rays:
                yield kill_a_ray_node(stack, rays)
        happenings = [happening for name, happening in ON_SLURM.items() if only in (None, name)]
        if not slurm.why_not() and happenings:
            with TemporaryDirectory(prefix="slurm-") as place, slurm.running_cluster(Path(place)) as nodes:
                for happening in happenings:
                    with user_of(nodes, stack) as user:
                        yield happening(user, stack)


def line(stalled: Stalled) -> str:
    """A line of the table."""
    still = "ended" if stalled.stalled_s is None else f"{stalled.stalled_s:.1f} s"
    return "\n".join(
        [f"{stalled.what:90}{still:>9}{stalled.whole_s:8.1f} s", *(f"    {each}" for each in stalled.messages)]
    )


def main() -> int:
    """Measure all events that are possible on this machine."""
    parser = ArgumentParser(prog="manage.py bench standstill", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print a JSON document for each happening")
    parser.add_argument("--only", choices=("ray-node", *ON_SLURM), help="one of them")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    lacking = {"ray": "" if on_ray.is_installed() else on_ray.INSTALL, "slurm": slurm.why_not()}
    for name, reason in lacking.items():
        if reason:
            say(f"{name}: left out: {reason}")
    if not options.json:
        say(f"{'':90}{'stalled':>9}{'until whole':>12}")
    for stalled in measure(options.only):
        say(msgspec.json.encode(stalled).decode() if options.json else line(stalled))
    return 0


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
