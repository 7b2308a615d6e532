"""``manage.py bench overhead``: the cost of LB-BSP's decisions, as a fraction of an iteration (LB-BSP 5.6).

A simulated job in Cluster-B with 32, 64 or 96 workers, with NARX after its warm-up, provides the entries of a log; then
the CPU time of the engine alone for these entries is measured. That is what the paper counts: processing reports and
updating batch sizes. Forecasts are fitted outside the engine; ``bench decisions`` measures the path between a report
and its orders (sockets, the log). Fails if the cost exceeds the paper's 1.1 %.
"""

import argparse
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from msgspec.structs import replace

from benchmarks.tables import say
from controlplane.core.commands import AnyCommand
from controlplane.core.context import EventRefused
from controlplane.core.engine import Engine
from controlplane.core.events import Entry, WorkerMessageReceived
from controlplane.policies.registry import resolve
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.spec import Stop
from controlplane.simulator.outcome import outcome_of
from controlplane.simulator.running import play
from controlplane.simulator.scenario import Scenario
from controlplane.simulator.scenarios import find

SCENARIO: Final = "lb-bsp-cluster-b"
USUAL: Final = 32
"""Workers of the scenario."""
WORKERS: Final = (32, 64, 96)
WARM_UP: Final = 520
"""Iterations before NARX decides."""
JOB: Final = 1
BAR: Final = 0.011


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """The result for one size of the cluster."""

    workers: int
    iterations: int
    """Number of timed iterations."""
    decision_ms: float
    """CPU time of the engine per iteration."""
    iteration_s: float
    """Simulated."""

    @property
    def part(self) -> float:
        """Fraction of an iteration."""
        return self.decision_ms / 1000 / self.iteration_s


class Entries:
    """Keeps the whole log."""

    def __init__(self) -> None:
        self.log: list[Entry] = []

    def add(self, entry: Entry, commands: list[AnyCommand]) -> None:
        """What the engine took."""
        del commands
        self.log.append(entry)


def enlarged(workers: int, iterations: int, warm_up: int) -> Scenario:
    """The cluster with more machines of each kind."""
    scenario, times = find(SCENARIO), workers // USUAL
    return replace(
        scenario,
        spec=replace(scenario.spec, workers=USUAL * times, stop=Stop(iterations=warm_up + iterations)),
        groups=tuple(replace(group, count=group.count * times) for group in scenario.groups),
        warm_up=warm_up,
    )


def measure(workers: int, iterations: int, warm_up: int, policy: str, seed: int) -> Overhead:
    """Simulate, and time the engine on what came of it, from the end of the warm-up on."""
    scenario, entries = enlarged(workers, iterations, warm_up), Entries()
    cluster = play(scenario, policy, seed=seed, recording=entries)
    engine, spent_s, timed = Engine(job=JOB, resolve=resolve), 0.0, 0
    for entry in entries.log:
        began_s = time.thread_time()
        with suppress(EventRefused):
            engine.handle(entry)
        took_s = time.thread_time() - began_s
        if timed or _is_past(entry, warm_up):
            spent_s, timed = spent_s + took_s, timed + 1
    outcome = outcome_of(cluster, policy, seed, None)
    return Overhead(
        workers=scenario.spec.workers,
        iterations=iterations,
        decision_ms=1000 * spent_s / iterations,
        iteration_s=outcome.iteration_s,
    )


def _is_past(entry: Entry, warm_up: int) -> bool:
    event = entry.event
    if not isinstance(event, WorkerMessageReceived) or not isinstance(event.message, IterationReport):
        return False
    return event.message.iteration >= warm_up


def main() -> int:
    """Print the table; 1 if a decision costs more than the bar."""
    parser = argparse.ArgumentParser(prog="manage.py bench overhead", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="*", default=list(WORKERS), help="multiples of 32 (32 64 96)")
    parser.add_argument("--iterations", type=int, default=60, help="that are timed (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="iterations before them (default: %(default)s)")
    parser.add_argument("--policy", default="narx", help="of the scenario's (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if odd := [workers for workers in options.workers if workers < USUAL or workers % USUAL]:
        parser.error(f"workers: found {odd[0]}, expected a multiple of {USUAL}")
    found = [
        measure(workers, options.iterations, options.warm_up, options.policy, options.seed)
        for workers in options.workers
    ]
    if options.json:
        say(json.dumps([{**asdict(one), "part": one.part} for one in found]))
    else:
        say("| workers | the engine's CPU time per iteration | iteration | part |")
        say("|---:|---:|---:|---:|")
        for one in found:
            say(f"| {one.workers} | {one.decision_ms:.1f} ms | {one.iteration_s:.2f} s | {one.part:.2%} |")
    return 1 if any(one.part > BAR for one in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
