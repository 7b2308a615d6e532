"""The load of a fleet from several processes: each simulates complete jobs and their machines.

``python -m benchmarks.live.load_process PART`` is one of them. It prints a line once its jobs train. Then it follows
its standard input: ``PERIOD_S SECONDS`` changes the pace and, unless it is for 0 seconds, measures, and prints the
waits; at the end of the input it stops its jobs, counts their rows and prints the counts.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

import msgspec

from benchmarks.live.simulated_jobs import Counted, SimulatedJobs, simulated_jobs
from benchmarks.live.steady_load import SteadyLoad
from benchmarks.tables import say
from controlplane.runtime.embedded.control_plane import CHECKOUT
from controlplane.runtime.garbage import collect_seldom

MOST_WORKERS: Final = 2_000
"""Of one process: a core carries some 10,000 of their messages per second, and theirs come in bursts."""

TRAINED_S: Final = 300.0
TRAINED_PERIODS: Final = 60
"""Additional iterations that the training of the predictors may take."""

STARTED: Final = "started"
DRAINED_S: Final = 1.0


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """The part of one process; passed on its command line."""

    number: int
    bases: list[str]
    """Addresses of the websockets of the web processes."""
    jobs: int
    workers: int
    """Of each job."""
    machines: int
    period_s: float
    relayed: bool
    batching: dict[str, Any]


class Stretch(msgspec.Struct, kw_only=True, frozen=True):
    """The waits of one stretch of time, in seconds, by job."""

    seconds: float
    waits_s: dict[int, list[float]]


@dataclass(slots=True, kw_only=True)
class LoadProcess:
    """Controls one of the processes; every method blocks."""

    process: "subprocess.Popen[str]"
    output: IO[str]

    def await_start(self) -> None:
        """Wait until its jobs train."""
        self._line()

    def measure(self, period_s: float, seconds: float) -> Stretch:
        """One measurement at that rate."""
        self._say(f"{period_s} {seconds}")
        return msgspec.json.decode(self._line(), type=Stretch)

    def stop(self) -> Counted:
        """Stop its jobs, and count."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return msgspec.json.decode(self._line(), type=Counted)

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        line = self.output.readline()
        if not line:
            raise RuntimeError(f"a process with load ended with exit code {self.process.wait()}; its error is above")
        return line


@contextmanager
def load_processes(parts: Iterable[Part]) -> Iterator[list[LoadProcess]]:
    """Start them; they end with the block."""
    with ExitStack() as stack:
        yield [stack.enter_context(_load_process(part)) for part in parts]


@contextmanager
def _load_process(part: Part) -> Iterator[LoadProcess]:
    command = [sys.executable, "-m", "benchmarks.live.load_process", msgspec.json.encode(part).decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT, text=True) as process:
        assert process.stdout is not None
        try:
            yield LoadProcess(process=process, output=process.stdout)
        finally:
            if process.stdin is not None and not process.stdin.closed:
                process.terminate()


def parts_of(
    *,
    bases: Sequence[str],
    jobs: int,
    workers: int,
    machines: int,
    period_s: float,
    relayed: bool,
    batching: Mapping[str, Any],
) -> list[Part]:
    """``jobs`` of ``workers`` each on so many machines, in as many processes as they need."""
    count = min(jobs, machines, max(1, -(-jobs * workers // MOST_WORKERS)))
    return [
        Part(
            number=number,
            bases=[bases[(number + each) % len(bases)] for each in range(len(bases))],
            jobs=_share(jobs, count, number),
            workers=workers,
            machines=_share(machines, count, number),
            period_s=period_s,
            relayed=relayed,
            batching=dict(batching),
        )
        for number in range(count)
    ]


def _share(whole: int, count: int, number: int) -> int:
    """The ``number``-th part of ``whole``, split as evenly as possible."""
    return whole // count + (number < whole % count)


def play(part: str, commands: IO[str]) -> None:
    """Run as one of the processes."""
    collect_seldom()  # a pass over the objects of two thousand connections delays their heartbeats
    _print(asyncio.run(_play(msgspec.json.decode(part, type=Part), commands)))


async def _play(part: Part, commands: IO[str]) -> Counted:
    pace = SteadyLoad(part.period_s, seed=7 + part.number)
    async with simulated_jobs(
        part.bases[0],
        pace,
        jobs=part.jobs,
        workers=part.workers,
        batching=part.batching,
        also=part.bases[1:],
        relayed=part.relayed,
        machines=part.machines,
        pool=f"load-{part.number}",
    ) as known:
        seconds = TRAINED_S + TRAINED_PERIODS * part.period_s
        await known.until("the training of the predictors", known.adopted, seconds=seconds)
        say(STARTED)
        while command := await asyncio.to_thread(commands.readline):
            pace.period_s, seconds = map(float, command.split())
            _print(await _stretch(known, pace, seconds))
        pace.over = True
        await asyncio.sleep(DRAINED_S + pace.period_s)
    assert known.counted is not None
    return known.counted


async def _stretch(known: SimulatedJobs, pace: SteadyLoad, seconds: float) -> Stretch:
    stage = pace.begin()
    await asyncio.sleep(seconds)
    if failed := [failure for machine in known.machines for failure in machine.failures]:
        raise RuntimeError(f"{len(failed)} simulated processes failed: {failed[0]}")
    pace.begin()  # later answers belong to another measurement
    silent: dict[int, list[float]] = {job: [] for job in known.jobs}
    return Stretch(seconds=seconds, waits_s=silent | stage.waits_s)


def _print(found: Stretch | Counted) -> None:
    say(msgspec.json.encode(found).decode())
