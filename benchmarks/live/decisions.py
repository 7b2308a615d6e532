"""Latency and cost from a report to orders: the full path compared with a bare echo, in one run on one machine.

The full path has all parts of production: uvicorn and the gateway with authentication, Redis with its append-only file,
Celery, the engine with LB-BSP, and ingest into the database, whose rows are counted afterwards. It is measured twice:
with a websocket per worker, and through the relays of their machines, as in agents.
"""

import asyncio
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from benchmarks.live.cluster import running_cluster
from benchmarks.live.counters import Counts, Divided, counts, divided
from benchmarks.live.load_agent import report
from benchmarks.live.measuring import Target, measure_apart
from benchmarks.live.simulated_jobs import Counted, SimulatedJobs, simulated_jobs
from benchmarks.live.timing import WARM_UP_S, Figures, Timing, figures, measure_echo
from benchmarks.live.usage import cpu_while
from benchmarks.tables import counted_line
from controlplane.protocol.codec import encode
from controlplane.runtime.redis import shared

MOST_LATENCY: Final = 2.5
"""Target: p50 of one worker's round trip, as a multiple of bare echo's."""

LEAST_THROUGHPUT: Final = 0.5
"""Target: messages per second with 64 workers, as a share of bare echo's."""

MOST_COST: Final = 2.0
"""Target: CPU per message of all processes with 64 workers, as a multiple of bare echo's."""

MOST_INGEST_COST: Final = 0.3
"""Target: CPU per report of the history process with 64 workers, as a multiple of bare echo's CPU per message."""

INGEST: Final = "history"
"""The process that copies reports to the database."""

CROWD: Final = 64

BATCHING: Final = {"name": "lb-bsp-cpu", "predictor": {"name": "narx", "samples": 40, "retrain_every": 0}}
"""The default, but trained once, early, and before measuring. Iterations without any work are a thousand times as fast
as real ones; training after every 100 of them would measure torch.
"""

TRAINED_S: Final = 300.0

Stretch = tuple[Timing, Mapping[str, float]]
"""Round trips, and the seconds of CPU of each process meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One measurement of the full path."""

    figures: Figures
    counted: Counted
    divided: Divided


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All measurements, and the ratios that have targets."""

    echo_one: Figures
    echo_crowd: Figures
    path_one: Path
    path_crowd: Path
    relayed_one: Path
    relayed_crowd: Path

    @property
    def latency_ratio(self) -> float:
        """One worker's median round trip against echo's."""
        return self.path_one.figures.p50_ms / self.echo_one.p50_ms

    @property
    def throughput_ratio(self) -> float:
        """Messages per second of 64 workers against echo's."""
        return self.path_crowd.figures.messages_per_s / self.echo_crowd.messages_per_s

    @property
    def cost_ratios(self) -> dict[str, float]:
        """CPU per message of 64 workers against echo's: by websockets of their own, and relayed."""
        paths = {"websockets": self.path_crowd, "relayed": self.relayed_crowd}
        return {name: sum(path.figures.cost_us.values()) / self._echo_us for name, path in paths.items()}

    @property
    def ingest_ratio(self) -> float:
        """CPU per report of ingest, of 64 workers with websockets, against echo's per message."""
        return self.path_crowd.figures.cost_us[INGEST] / self._echo_us

    @property
    def _echo_us(self) -> float:
        """CPU per message of 64 connections to echo, on both sides."""
        return sum(self.echo_crowd.cost_us.values())

    @property
    def failures(self) -> list[str]:
        """Missed targets and lost data, as sentences."""
        found = []
        if self.latency_ratio > MOST_LATENCY:
            found.append(
                f"round trip is {self.latency_ratio:.2f} times bare echo's, at most {MOST_LATENCY} is the target"
            )
        if self.throughput_ratio < LEAST_THROUGHPUT:
            found.append(
                f"{self.throughput_ratio:.2f} of bare echo's messages/s, at least {LEAST_THROUGHPUT} is the target"
            )
        if (cost := self.cost_ratios["websockets"]) > MOST_COST:
            found.append(f"a message costs {cost:.2f} times bare echo's CPU, at most {MOST_COST} is the target")
        if self.ingest_ratio > MOST_INGEST_COST:
            found.append(
                f"ingest of a report costs {self.ingest_ratio:.2f} times bare echo's CPU per message,"
                f" at most {MOST_INGEST_COST} is the target"
            )
        for path in (self.path_one, self.path_crowd, self.relayed_one, self.relayed_crowd):
            found += path.counted.losses
        return found

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        ratios: dict[str, Any] = {"latency_ratio": self.latency_ratio, "throughput_ratio": self.throughput_ratio}
        ratios |= {"cost_ratios": self.cost_ratios, "ingest_ratio": self.ingest_ratio}
        return document | ratios | {"failures": self.failures}


def run(options: Namespace) -> dict[str, Any]:
    """Start a control plane and measure it."""
    with running_cluster() as cluster:
        return measure_apart(cluster, options, echo=cluster.start_echo())


def measure(within: str) -> dict[str, Any]:
    """Measure; the environment is that of the running control plane."""
    return asyncio.run(_measure(Target.decode(within))).document()


async def _measure(target: Target) -> Result:
    echo_one, path_one, relayed_one = await _side_by_side(target, connections=1)
    echo_crowd, path_crowd, relayed_crowd = await _side_by_side(target, connections=CROWD)
    return Result(
        echo_one=echo_one,
        path_one=path_one,
        echo_crowd=echo_crowd,
        path_crowd=path_crowd,
        relayed_one=relayed_one,
        relayed_crowd=relayed_crowd,
    )


async def _side_by_side(target: Target, *, connections: int) -> tuple[Figures, Path, Path]:
    """Measure echo before, between and after the full paths, so that changing noise of the machine favours none."""
    seconds = target.seconds / 3
    echo = [await _echo(target, connections=connections, seconds=seconds)]
    path = await measure_path(target, workers=connections)
    echo.append(await _echo(target, connections=connections, seconds=seconds))
    relayed = await measure_path(target, workers=connections, relayed=True)
    echo.append(await _echo(target, connections=connections, seconds=seconds))
    return summed_up(connections, echo), path, relayed


async def _echo(target: Target, *, connections: int, seconds: float) -> Stretch:
    timing = Timing(seconds=seconds)
    cpu = asyncio.create_task(cpu_while(timing, {"echo": target.echo_process}))
    await measure_echo(target.echo, _payload, timing, connections=connections)
    return timing, await cpu


def _payload(number: int) -> bytes:
    return encode(report(number, number))


async def measure_path(target: Target, *, workers: int, relayed: bool = False) -> Path:
    """Reports as fast as orders come."""
    timing = Timing(seconds=target.seconds)
    jobs = simulated_jobs(target.websockets, timing, jobs=1, workers=workers, batching=BATCHING, relayed=relayed)
    async with jobs as known:
        await known.until("the training of the predictor", known.adopted, seconds=TRAINED_S)
        cpu = asyncio.create_task(cpu_while(timing, target.processes | known.relays))
        timing.start()
        await asyncio.sleep(WARM_UP_S)
        before = await _counts(target, known)
        while not timing.over:
            await asyncio.sleep(0.1)
        now, stretch = await _counts(target, known), (timing, await cpu)
    assert known.counted is not None
    found = summed_up(workers, [stretch])
    messages = round(found.messages_per_s * timing.seconds)
    parts = divided(before, now, messages=messages, seconds=timing.seconds, cost_us=found.cost_us)
    return Path(figures=found, counted=known.counted, divided=parts)


async def _counts(target: Target, known: SimulatedJobs) -> Counts:
    frames = sum(machine.frames_received for machine in known.machines)
    return await asyncio.to_thread(counts, shared(), target.processes | known.relays, frames=frames)


def summed_up(connections: int, stretches: Sequence[Stretch]) -> Figures:
    """Several measurements of one side as one."""
    round_trips_s = [round_trip_s for timing, _ in stretches for round_trip_s in timing.round_trips_s]
    cpu_s = {name: sum(cpu[name] for _, cpu in stretches) for name in stretches[0][1]}
    return figures(connections, round_trips_s, sum(timing.seconds for timing, _ in stretches), cpu_s)


def table(document: dict[str, Any]) -> str:
    """The results as a table."""
    sides = [
        ("bare echo, 1", document["echo_one"]),
        ("full path, 1", document["path_one"]["figures"]),
        ("relayed, 1", document["relayed_one"]["figures"]),
        ("bare echo, 64", document["echo_crowd"]),
        ("full path, 64", document["path_crowd"]["figures"]),
        ("relayed, 64", document["relayed_crowd"]["figures"]),
    ]
    lines = [f"{'':22}{'p50':>10}{'p99':>10}{'messages/s':>14}"]
    for title, found in sides:
        p50, p99, rate = found["p50_ms"], found["p99_ms"], found["messages_per_s"]
        lines.append(f"{title:22}{p50:7.3f} ms{p99:7.3f} ms{rate:14,.0f}")
    lines.append(
        f"round trip of one worker: {document['latency_ratio']:.2f} times bare echo's (target: at most {MOST_LATENCY})"
    )
    lines.append(
        f"messages/s of 64 workers: {document['throughput_ratio']:.2f} of bare echo's"
        f" (target: at least {LEAST_THROUGHPUT})"
    )
    costs = document["cost_ratios"]
    lines.append(
        f"CPU per message of 64 workers: {costs['websockets']:.2f} times bare echo's, "
        f"{costs['relayed']:.2f} through relays (target: at most {MOST_COST})"
    )
    lines.append(
        f"CPU of ingest per report: {document['ingest_ratio']:.2f} times bare echo's per message"
        f" (target: at most {MOST_INGEST_COST})"
    )
    lines.append("CPU time per message, in microseconds, which other load on the machine hardly changes:")
    for title, found in sides:
        cost_us = found["cost_us"]
        each = ", ".join(f"{name} {cost:.0f}" for name, cost in cost_us.items())
        lines.append(f"{title:22}{sum(cost_us.values()):7.0f}: {each}")
    lines.append("How finely the work was divided:")
    for title, name in (("full path, 64", "path_crowd"), ("relayed, 64", "relayed_crowd")):
        lines += _divided_lines(title, document[name]["divided"])
    for name in ("path_one", "relayed_one", "path_crowd", "relayed_crowd"):
        path, way = document[name], ", relayed" if name.startswith("relayed") else ""
        lines.append(counted_line(f"{path['figures']['connections']} workers{way}", path["counted"]))
    return "\n".join(lines)


def _divided_lines(title: str, found: dict[str, Any]) -> list[str]:
    sizes = f"messages per append {found['messages_per_append']:.1f}, per commit {found['messages_per_commit']:.1f}"
    each = [
        f"{name} {rate:,.0f}/s of {found['wake_up_us'][name]:.0f} us" for name, rate in found["wake_ups_per_s"].items()
    ]
    return [
        f"{title:22}{sizes}; orders and other frames per message {found['frames_per_message']:.2f}",
        f"{'':22}wake-ups: {', '.join(each)}",
    ]
