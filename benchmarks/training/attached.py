"""Gain and cost of Paceline for an attached script: each figure is a ratio within one run.

    manage.py bench attached [--part speeds|constant|even|long|outage|client|memory ...] [--json]

- ``speeds``: four gloo ranks of 1000, 1000, 500 and 250 samples/s, mean iteration beside the plain script;
- ``constant``: the same with 100 ms more per iteration, by ``lb-bsp-linear``, beside the optimum of those lines;
- ``even``: two ranks of equal speed that compute for 13 ms, in ten pairs of blocks that take turns: the means, and
  beside them the lower quartiles, which what else runs on the machine lengthens less;
- ``long``: the same with eight times the samples, as iterations of real models are;
- ``outage``: the control plane but its Redis is killed for a minute; the longest iteration beside the median, and lost
  reports. A plain script that runs beside it shows what services that start take from both; the verdict is without it;
- ``client``: 64 ranks as threads on the real client at two iterations per second: CPU per rank and iteration, beside
  what 64 threads need to send and hear frames of that size over bare websockets;
- ``memory``: resident memory of a rank of two behind 300 iterations, attached beside plain, in three
  pairs; and what a rank keeps of a long outage.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from statistics import mean, median, quantiles
from typing import Any, Final

import numpy as np
import psutil
from websockets.asyncio.client import connect

from benchmarks.live.cluster import BenchCluster, running_cluster
from benchmarks.tables import say
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.outbox import Outbox
from controlplane.runtime.embedded.control_plane import CHECKOUT, start_part
from controlplane.runtime.embedded.ground import free_port
from paceline.link import MOST_KEPT

SPEEDS: Final = [1000.0, 1000.0, 500.0, 250.0]
BATCH: Final = 128
SETTLED: Final = 20
"""Iterations until shares have settled."""
CONSTANT_S: Final = 0.1
RANKS: Final = 64
FRAME: Final = 300
"""Bytes of a report, about."""

ECHO: Final = """
import asyncio
from websockets.asyncio.server import serve

async def answer(socket):
    async for frame in socket:
        await socket.send(frame[:20])

async def main():
    server = await serve(answer, "127.0.0.1", 0, compression=None)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

AWAY_S: Final = 60.0
LONG: Final = 1_200
"""Iterations of 64 ms that an outage is in the midst of."""

KILLED: Final = ("web", "decisions", "history", "beat")
DEADLINE_S: Final = 420

MIB: Final = 2**20
PAIRS_OF_MEMORY: Final = 3

BARS: Final = {
    "speeds": 0.42,
    "constant": 1.1,
    "even": 1.01,
    "long": 1.01,
    "outage": 1.5,
    "client_ms": 1.0,
    "memory_mib": 30.0,
}


def run_ranks(cluster: BenchCluster, options: dict[str, Any], *, workers: int, batching: str) -> dict[str, Any]:
    """Rank 0's result; the job is finished afterwards."""
    job = submit(cluster, workers, batching, options["batch_size"])
    attached = {
        "PACELINE_URL": cluster.plane.url,
        "PACELINE_JOB": str(job["id"]),
        "PACELINE_TOKEN": job["token"],
    }
    found = launch(options, workers, attached)
    cluster.ask("POST", f"jobs/{job['id']}/actions/finish", json={"exit_code": 0})
    return {"job": job["id"], **found}


def launch(options: dict[str, Any], workers: int, attached: dict[str, str]) -> dict[str, Any]:
    """Rank 0's result with that many processes."""
    port, processes = free_port(), []
    for rank in range(workers):
        environment = os.environ | {
            "BENCH": json.dumps(options),
            "RANK": str(rank),
            "WORLD_SIZE": str(workers),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            **attached,
        }
        command = [sys.executable, "-m", "benchmarks.training.attached_rank"]
        processes.append(subprocess.Popen(command, env=environment, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True))
    try:
        text, _ = processes[0].communicate(timeout=DEADLINE_S)
        for process in processes[1:]:
            process.communicate(timeout=DEADLINE_S)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    document: dict[str, Any] = json.loads(text)
    return document


def submit(cluster: BenchCluster, workers: int, batching: str, batch_size: int) -> dict[str, Any]:
    """An attached job, with its token."""
    spec = {"name": "bench", "launch": "attached", "workers": workers, "batch_size": batch_size, "seed": 7}
    return cluster.ask("POST", "jobs", json=spec | {"synchronization": {"batching": {"name": batching}}})


def measure_speeds(cluster: BenchCluster) -> dict[str, Any]:
    """Ranks of four speeds: beside the plain script, once shares have settled."""
    options = {"speeds": SPEEDS, "batch_size": BATCH, "layers": 1, "pairs": 1, "iterations": 50}
    found = run_ranks(cluster, options, workers=4, batching="lb-bsp-gpu")
    plain, paced = mean(found["plain"][0][5:]), mean(found["paced"][0][SETTLED:])
    total = sum(SPEEDS)
    return {
        "plain_ms": 1e3 * plain,
        "paced_ms": 1e3 * paced,
        "ratio": paced / plain,
        "ideal": (4 * BATCH / total) / (BATCH / min(SPEEDS)),
        "first_iterations_ms": [round(1e3 * each) for each in found["paced"][0][:SETTLED]],
        "shares": found["shares"][-1],
    }


def measure_constant(cluster: BenchCluster) -> dict[str, Any]:
    """A large constant cost: beside the shares that are best for those lines."""
    options = {
        "speeds": SPEEDS,
        "batch_size": BATCH,
        "layers": 1,
        "pairs": 1,
        "iterations": 70,
        "constant_s": CONSTANT_S,
    }
    found = run_ranks(cluster, options, workers=4, batching="lb-bsp-linear")
    paced = mean(found["paced"][0][SETTLED:])
    best, shares = CONSTANT_S + 4 * BATCH / sum(SPEEDS), found["shares"][-1]
    return {
        "plain_ms": 1e3 * mean(found["plain"][0][5:]),
        "paced_ms": 1e3 * paced,
        "optimum_ms": 1e3 * best,
        "ratio": paced / best,
        "by_shares": max(CONSTANT_S + share / speed for share, speed in zip(shares, SPEEDS, strict=True)) / best,
        "shares": found["shares"][-1],
    }


def measure_even(cluster: BenchCluster, *, batch_size: int = 128) -> dict[str, Any]:
    """Equal machines that compute: what pacing costs, pair by pair."""
    options = {"speeds": [0.0, 0.0], "batch_size": batch_size, "layers": 8, "pairs": 11, "iterations": 16}
    found = run_ranks(cluster, options, workers=2, batching="lb-bsp-gpu")
    both = list(zip(found["plain"], found["paced"], strict=True))[1:]
    pairs = [mean(paced) / mean(plain) for plain, paced in both]
    cpu = {name: median([cpu_s for each, cpu_s in found["cpu"][2:] if each == name]) for name in ("plain", "paced")}
    return {
        "plain_ms": 1e3 * median(each for block in found["plain"][1:] for each in block),
        "ratio": mean(mean(paced) for _, paced in both) / mean(mean(plain) for plain, _ in both),
        "quartile_ratio": median(quick(paced) / quick(plain) for plain, paced in both),
        "pairs": [round(each, 4) for each in pairs],
        "cpu_ratio": cpu["paced"] / cpu["plain"],
        "cpu_ms_more": 1e3 * (cpu["paced"] - cpu["plain"]),
    }


def quick(lengths: Sequence[float]) -> float:
    """The lower quartile: what else runs on the machine lengthens the others."""
    return quantiles(lengths, n=4)[0]


def measure_outage(cluster: BenchCluster) -> dict[str, Any]:
    """The control plane is killed for a minute."""
    options = {"speeds": [500.0, 500.0], "batch_size": 32, "layers": 1, "pairs": 1, "iterations": LONG}
    found: dict[str, Any] = {}
    beside: dict[str, Any] = {}

    def run_paced() -> None:
        found.update(run_ranks(cluster, options | {"only": "paced"}, workers=2, batching="lb-bsp-gpu"))

    threads = [
        threading.Thread(target=run_paced, daemon=True),
        threading.Thread(target=lambda: beside.update(launch(options | {"only": "plain"}, 2, {})), daemon=True),
    ]
    for thread in threads:
        thread.start()
    while not any(row["iteration"] >= 20 for row in cluster.pages("jobs") if not row["is_over"]):
        time.sleep(0.2)
    killed = [each for each in cluster.supervisor.services if each.name in KILLED]
    for service in killed:
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
    time.sleep(AWAY_S)
    for service in killed:
        cluster.supervisor.replace(service, start_part(cluster.plane, service.name, cluster.environment))
    for thread in threads:
        thread.join(DEADLINE_S)
    lengths, plain = found["paced"][0][5:], beside["plain"][0][5:]
    job = found["job"]
    expected = {(rank, k) for rank in range(2) for k in range(LONG)}
    rows: set[tuple[int, int]] = set()
    end = time.monotonic() + 60
    while time.monotonic() < end and not expected <= rows:
        events = cluster.pages(f"jobs/{job}/events?kind=report&page_size=500")
        rows = {(row["event"]["rank"], row["event"]["message"]["iteration"]) for row in events}
    return {
        "median_ms": 1e3 * median(lengths),
        "longest_ms": 1e3 * max(lengths),
        "ratio": max(lengths) / median(lengths),
        "bystander": max(plain) / median(plain),
        "long": sum(each > BARS["outage"] * median(lengths) for each in lengths),
        "bystander_long": sum(each > BARS["outage"] * median(plain) for each in plain),
        "lost": len(expected - rows),
    }


def measure_client(cluster: BenchCluster, *, iterations: int = 20) -> dict[str, Any]:
    """The client's own CPU: agreement, timing, reports and sockets of 64 ranks in one process."""
    from paceline.attaching import control_of
    from paceline.ceilings import Ceiling
    from paceline.identity import Identity
    from paceline.pacer import Pacer
    from paceline.variables import Target

    job = submit(cluster, RANKS, "lb-bsp-gpu", BATCH)
    bare_ms = 1e3 * bare_websockets(iterations)
    meeting = Meeting(RANKS)
    pacers = []
    for rank in range(RANKS):
        who = Identity(rank=rank, world=RANKS, launcher="bench")
        control = control_of(who, Target(url=cluster.plane.url, job=str(job["id"]), token=job["token"]))
        pacers.append(Pacer(who, control, Ceiling(None, rank), channel=meeting.channel(rank)))
        pacers[-1]._wire = own_wire()
    threads = [threading.Thread(target=_iterate, args=(pacer, iterations, meeting)) for pacer in pacers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.ask("POST", f"jobs/{job['id']}/actions/finish", json={"exit_code": 0})
    cpu_ms = 1e3 * meeting.cpu_s / RANKS / iterations
    return {"cpu_ms": cpu_ms, "bare_ms": bare_ms, "ratio_to_bare": cpu_ms / bare_ms, "wall_s": meeting.wall_s}


def own_wire() -> Any:
    """Reads one connection, as in a process with one rank, and not those of all ranks of this process."""
    from paceline.wire import Wire

    class OwnWire(Wire):
        def look(self) -> None:
            if not self._connections:
                super().look()
            self._connections = dict([*self._connections.items()][:1])

    return OwnWire()


def bare_websockets(iterations: int) -> float:
    """CPU seconds per thread and frame of so many threads, each of which sends a frame and hears one twice a second."""
    echo = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
    try:
        assert echo.stdout is not None
        port = int(echo.stdout.readline())
        barrier, spent = threading.Barrier(RANKS), [0.0]
        threads = [
            threading.Thread(target=lambda rank=rank: asyncio.run(_speak(port, iterations, barrier, spent, rank)))
            for rank in range(RANKS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return spent[0] / RANKS / iterations
    finally:
        echo.kill()
        echo.wait()


async def _speak(port: int, iterations: int, barrier: threading.Barrier, spent: list[float], rank: int) -> None:
    async with connect(f"ws://127.0.0.1:{port}", compression=None) as socket:
        barrier.wait()
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        for number in range(1, iterations + 1):
            await socket.send(bytes(FRAME))
            await socket.recv()
            await asyncio.sleep(max(0.0, begun_s + 0.5 * number - time.perf_counter()))
        if rank == 0:
            spent[0] = time.process_time() - cpu_s
        barrier.wait()


WARM = 17  # iterations that do not count: in the first 16 every rank waits for the ranks' status


class Meeting:
    """Replaces gloo: threads add their words here."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._sums: dict[int, Total] = {}
        self._lock, self.barrier = threading.Lock(), threading.Barrier(world)
        self.cpu_s = self.wall_s = 0.0

    def channel(self, rank: int) -> "ThreadChannel":
        """The channel of one rank."""
        return ThreadChannel(self)

    def add(self, number: int, words: Sequence[float]) -> Callable[[], list[float]]:
        """Add to the sum of that number; returns a handle that has the total once it is complete."""
        with self._lock:
            each = self._sums.setdefault(number, Total(len(words), self.world))
            each.values += words
            each.missing -= 1
            if not each.missing:
                each.complete.set()
                self._sums.pop(number)
        return each.result


class Total:
    """The sum of all threads' words: waiting for it wakes no other."""

    def __init__(self, length: int, world: int) -> None:
        self.values, self.missing, self.complete = np.zeros(length), world, threading.Event()

    def result(self) -> list[float]:
        """The total, once every rank has added its part."""
        self.complete.wait()
        found: list[float] = self.values.tolist()
        return found


class ThreadSum:
    """A sum under way."""

    def __init__(self, result: Callable[[], list[float]]) -> None:
        self.result = result


class ThreadChannel:
    """Sums over threads."""

    store = None

    def __init__(self, meeting: Meeting) -> None:
        self._meeting, self._number = meeting, 0

    def begin(self, words: Sequence[float]) -> "ThreadSum":
        """Add ``words``, and continue."""
        self._number += 1
        return ThreadSum(self._meeting.add(self._number, words))

    def total(self, words: Sequence[float]) -> list[float]:
        """Add ``words``, and wait."""
        return self.begin(words).result()

    def close(self) -> None:
        """Nothing is left of a sum."""


def _iterate(pacer: Any, iterations: int, meeting: Meeting) -> None:
    pacer._watched = True
    loader = pacer.loader(range(RANKS * BATCH * (WARM + iterations + 4)), BATCH, seed=7, collate_fn=len)
    begun_s = cpu_s = 0.0
    for number, _ in enumerate(loader):
        pacer.step(0.5)
        if number == WARM:
            meeting.barrier.wait()
            begun_s, cpu_s = time.perf_counter(), time.process_time()
        if number == WARM + iterations:
            break
        if number > WARM:
            time.sleep(max(0.0, begun_s + 0.5 * (number - WARM) - time.perf_counter()))
    if pacer.rank == 0:
        meeting.cpu_s, meeting.wall_s = time.process_time() - cpu_s, time.perf_counter() - begun_s
    meeting.barrier.wait()
    pacer.close()


def measure_memory(cluster: BenchCluster) -> dict[str, Any]:
    """The additional memory of an attached rank."""
    options = {"speeds": [0.0, 0.0], "batch_size": 8, "layers": 1, "pairs": 1, "iterations": 300}
    plain, paced = [], []
    for _ in range(PAIRS_OF_MEMORY):
        plain.append(launch({**options, "only": "plain"}, 2, {})["resident"] / MIB)
        paced.append(
            run_ranks(cluster, {**options, "only": "paced"}, workers=2, batching="lb-bsp-linear")["resident"] / MIB
        )
    added, kept = median(paced) - median(plain), kept_mib()
    return {"plain_mib": plain, "attached_mib": paced, "kept_mib": kept, "added_mib": added, "most_mib": added + kept}


def kept_mib() -> float:
    """What a rank keeps at most in an outage: reports, up to its bound. In a separate process, in which nothing that
    earlier parts left is freed meanwhile.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(_kept_mib).result()


def _kept_mib() -> float:
    process, outbox = psutil.Process(), Outbox[Any]()
    before = process.memory_info().rss
    for iteration in range(MOST_KEPT):
        outbox.say(partial(_a_report, iteration=iteration))
    return float(process.memory_info().rss - before) / MIB


def _a_report(number: int, *, iteration: int) -> IterationReport:
    return IterationReport(
        number=number,
        generation=1,
        iteration=iteration,
        samples=32,
        position=32 * iteration,
        loss=random.random(),
        data_s=random.random(),
        compute_s=random.random(),
        push_s=random.random(),
        pull_s=random.random(),
        waiting_s=random.random(),
        coordination_s=0.0,
        outside_s=random.random(),
        cpu=random.random(),
        memory=random.random(),
    )


PARTS: Final[dict[str, Callable[[BenchCluster], dict[str, Any]]]] = {
    "speeds": measure_speeds,
    "constant": measure_constant,
    "even": measure_even,
    "long": partial(measure_even, batch_size=1024),
    "outage": measure_outage,
    "client": measure_client,
    "memory": measure_memory,
}


def failures(document: dict[str, Any]) -> list[str]:
    """Missed targets, as sentences."""
    missed = []
    for part in ("speeds", "constant", "even", "long", "outage"):
        if part in document and document[part]["ratio"] > BARS[part]:
            beside = f" (a plain script beside it: {document[part]['bystander']:.3f})" if part == "outage" else ""
            missed.append(f"{part}: {document[part]['ratio']:.3f}{beside}, expected at most {BARS[part]:.3g}")
    if document.get("outage", {}).get("lost"):
        missed.append(f"outage: {document['outage']['lost']} reports are missing in the database")
    if "client" in document and document["client"]["cpu_ms"] > BARS["client_ms"]:
        missed.append(f"client: {document['client']['cpu_ms']:.2f} ms of CPU per rank and iteration")
    if "memory" in document and document["memory"]["most_mib"] > BARS["memory_mib"]:
        missed.append(f"memory: {document['memory']['most_mib']:.1f} MiB more than the plain script")
    return missed


def main() -> int:
    """Measure the requested parts; 1 if one misses its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=list(PARTS), help="may be given more than once")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    document: dict[str, Any] = {}
    with running_cluster() as cluster:
        for part in options.part or list(PARTS):
            document[part] = PARTS[part](cluster)
            if not options.json:
                say(f"{part}: {json.dumps(document[part])}")
    document["failures"] = failures(document)
    say(json.dumps(document) if options.json else "\n".join(document["failures"]) or "all targets are met")
    return 1 if document["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
