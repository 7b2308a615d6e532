"""``manage.py bench fuzz --seed N``: mutated frames over every websocket and to parameter servers, while others train.

Half of the frames to servers go to the bystander's, without a key, the other half to the fuzzer's own server, with a
key. The frames are determined by the seed. Targets: no service and no process of the bystander's job ends, memory is
flat, and the bystander's job keeps its rate within 5 % of that of the quiet times before and after.
"""

import asyncio
import time
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Final

import httpx
import msgspec
import psutil

from benchmarks.faults.injection import processes_of
from benchmarks.live.cluster import POOL, BenchCluster, running_cluster
from benchmarks.live.measuring import seconds_of
from benchmarks.live.usage import memory_mb
from benchmarks.security.attacks import is_ready
from benchmarks.security.context import AttackContext
from benchmarks.security.data_plane import fuzz_servers, fuzz_sessions
from benchmarks.security.fuzzers import Sent, Way, fuzz_sockets, ways
from benchmarks.security.hostile import ATTACKER, BEGIN_S, SPEED, VICTIM, WORKERS, grown, ports_of, spec_of, watching
from benchmarks.security.malicious_agent import MaliciousAgent
from benchmarks.security.own_server import Started, own_server
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.joining import let_in

LEAST_RATE: Final = 0.95
"""Target: of the mean of the quiet rates before and after."""

OWN: Final = "own server"

SETTLE_S: Final = 5.0
PATIENCE: Final = 20.0
"""A fuzzer may take this multiple of its time at full rate."""


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """What was sent, and the effect on others."""

    seed: int
    sent: dict[str, Sent]
    seconds: dict[str, float]
    rates: dict[str, float]
    """Iterations of the bystander's job per second, in each phase."""
    memory_mb: dict[str, tuple[float, float]]
    lost: list[str]

    @property
    def failures(self) -> list[str]:
        """The missed targets."""
        found = list(self.lost)
        quiet = (self.rates["before"] + self.rates["after"]) / 2
        for name in self.sent:
            if not quiet or self.rates[name] < LEAST_RATE * quiet:
                part = self.rates[name] / quiet if quiet else 0.0
                found.append(f"{name}: the bystander trains at {part:.2f} of its rate, expected {LEAST_RATE:g}")
        return [*found, *grown(self.memory_mb)]


def run(options: Namespace) -> dict[str, Any]:
    """Train quietly, under both fuzzers, and quietly again."""
    with (
        running_cluster() as cluster,
        own_server() as own,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fuzzer,
    ):
        fuzzer.submit(is_ready).result(BEGIN_S)
        result = _trial(cluster, own, fuzzer, options)
    document: dict[str, Any] = msgspec.to_builtins(result)
    return document | {"failures": result.failures}


def table(document: dict[str, Any]) -> str:
    """For people."""
    quiet = (document["rates"]["before"] + document["rates"]["after"]) / 2
    lines = [f"seed {document['seed']}"]
    for name, rate in document["rates"].items():
        count = document["sent"].get(name, {}).get("frames", 0)
        part = f"{rate / quiet:.3f} of its rate" if quiet else "no rate"
        lines.append(
            f"{name:14}{count:10} frames in {document['seconds'][name]:6.1f} s{rate:8.2f} iterations/s  {part}"
        )
    for name, sent in document["sent"].items():
        lines.append(f"{name}: " + "; ".join(f"{count} x {what}" for what, count in sorted(sent["answers"].items())))
    memory = (f"{name} {before:.0f} -> {after:.0f}" for name, (before, after) in document["memory_mb"].items())
    return "\n".join([*lines, f"memory in MB: {', '.join(memory)}"])


def _trial(cluster: BenchCluster, own: Started, fuzzer: ProcessPoolExecutor, options: Namespace) -> Result:
    quiet_s = seconds_of(options)
    cluster.join(VICTIM, pool=VICTIM, speeds=[SPEED] * WORKERS, server_slots=1)
    job = cluster.submit(spec_of("bystander", workers=WORKERS, stop={"iterations": 10**8}), pool=VICTIM)
    if not cluster.wait(job, lambda found: found["iteration"] > 0, seconds=BEGIN_S).get("iteration"):
        raise CannotStart(f"The bystander's job did not begin within {BEGIN_S:.0f} s")
    ports = sorted({port for server in processes_of(job, "s") for port in ports_of(server)})
    opened = own_ways(cluster)
    lives, pids, lost = _lives(cluster, job), dict(cluster.processes), list[str]()
    watched = {name: psutil.Process(pid) for name, pid in pids.items()}
    watched |= {"worker": processes_of(job, "w")[0], "server": processes_of(job, "s")[0]}
    watched[OWN] = psutil.Process(own.process)
    rates, seconds, sent = dict[str, float](), dict[str, float](), dict[str, Sent]()
    with watching(cluster, job) as reached:

        def phase(name: str, happen: Callable[[], None]) -> None:
            began = time.monotonic()
            happen()
            over = time.monotonic()
            cluster.supervisor.interruption.pause(1.0)
            rates[name] = sum(began <= at <= over for at in list(reached)) / (over - began)
            seconds[name] = over - began

        def fuzz(name: str, count: int, begin: Callable[[], Any]) -> None:
            limit = max(60.0, PATIENCE * count / options.rate)
            try:
                sent[name] = begin().result(limit)
            except TimeoutError:
                sent[name] = Sent()
                lost.append(f"{name}: not sent within {limit:.0f} s")

        rest = cluster.supervisor.interruption.pause
        phase("before", lambda: rest(quiet_s))
        before = {name: memory_mb(process) for name, process in watched.items()}
        strangers = options.transfers // 2
        insiders = options.transfers - strangers
        steps: list[tuple[str, int, Callable[[], Any]]] = [
            (
                "sockets",
                options.frames,
                lambda: fuzzer.submit(fuzz_sockets, opened, options.seed, options.frames, options.rate),
            ),
            (
                "data plane",
                strangers,
                lambda: fuzzer.submit(fuzz_servers, ports, options.seed, strangers, options.rate),
            ),
            (
                "own server",
                insiders,
                lambda: fuzzer.submit(fuzz_sessions, own.own, options.seed, insiders, options.rate),
            ),
        ]
        for name, count, begin in steps:
            phase(name, lambda name=name, count=count, begin=begin: fuzz(name, count, begin))  # type: ignore[misc]
        rest(SETTLE_S)
        phase("after", lambda: rest(quiet_s))
    memory = {name: (before[name], memory_mb(process)) for name, process in watched.items()}
    lost += [f"{name} ended" for name, (_, after) in memory.items() if not after]
    lost += [] if own.lives else [f"{OWN} ended"]
    lost += [f"{name} was started again" for name, pid in cluster.processes.items() if pids.get(name) != pid]
    if again := _lives(cluster, job) - lives:
        lost.append(f"processes of the bystander's job were started again: {sorted(again)}")
    cluster.client.post(f"jobs/{job}/actions/stop")
    return Result(seed=options.seed, sent=sent, seconds=seconds, rates=rates, memory_mb=memory, lost=lost)


def own_ways(cluster: BenchCluster) -> list[Way]:
    """Every socket, with credentials of a machine, processes, ranks and a user of the fuzzer's own."""
    token = cluster.ask("POST", "agents/enrolment-tokens", json={"labels": {POOL: ATTACKER}})["token"]
    credential = cluster.ask("POST", "agents/enrol", json={"token": token, "name": ATTACKER})["credential"]
    native = cluster.submit(spec_of("fuzzed", workers=1, stop={"iterations": 10**6}), pool=ATTACKER)
    attached = int(cluster.ask("POST", "jobs", json={"name": "fuzzed-ranks", "launch": "attached"})["id"])
    ranks = cluster.ask("POST", f"jobs/{attached}/token", json={})["token"]
    access = let_in("fuzzer", role="viewer", environment=cluster.environment)
    with httpx.Client(trust_env=False) as browser:
        session = browser.get(access.login_link).cookies["sessionid"]
    context = AttackContext(
        url=cluster.plane.url,
        credential=credential,
        victims=[],
        data_ports=[],
        number=1,
        own_job=native,
        seconds=BEGIN_S,
    )
    known = asyncio.run(_ordered(context))
    return ways(
        cluster.websockets,
        credential=credential,
        worker=known["worker"],
        server=known["server"],
        ranks=ranks,
        session=session,
        jobs=(native, attached),
    )


async def _ordered(context: AttackContext) -> dict[str, str]:
    agent = MaliciousAgent(context)
    async with asyncio.timeout(context.seconds):
        orders = await agent.ordered()
    await agent.leave()
    return {order.role: f"{order.index}:{order.instance}:{order.key}" for order in orders}


def _lives(cluster: BenchCluster, job: int) -> set[tuple[str, int, str]]:
    rows = cluster.ask("GET", f"jobs/{job}/processes")["results"]
    return {(row["role"], row["index"], row["instance"]) for row in rows}
