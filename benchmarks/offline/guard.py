"""Whether a job's guard finds the changes of its barrier that harm convergence, and only those.

Jobs are drawn from a seed: model, optimizer, learning rate, workers and their speeds, batch, what one asynchronous
update does, and when the barrier changes from ``bsp`` to ``asp``. Each is simulated with real gradients three times:
without the change, with it, and with it under a guard. A change is *harmful* if the held-out loss at equal samples,
over the last of 60 global batches after it, exceeds that without the change by more than a tenth, and *harmless* if by
less than 2 %. Jobs in between are not counted. Drawing ends with ten of each kind.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TextIO

import numpy as np
from msgspec.structs import replace

from controlplane.core.commands import AnyCommand, ChangePolicies, JudgeConvergence
from controlplane.core.events import ChangeRequested, Entry, WorkerMessageReceived
from controlplane.protocol.guard import Guard
from controlplane.protocol.messages import Evaluation, IterationReport
from controlplane.protocol.spec import Choice, Evaluate, JobSpec, Stop, Synchronization, Workload
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.numerics.settings import Numerics, Optimizer
from controlplane.simulator.scenario import Group, Scenario, check

JOBS: Final = 20
AFTER: Final = 60
"""Global batches after the change."""
LAST: Final = 20
"""Of these, those whose held-out loss is compared."""
HARMFUL: Final = 0.10
HARMLESS: Final = 0.02
WITHIN: Final = 50
"""Global batches after the change within which harm must be found."""
MOST_FALSE: Final = 1
LEAST_LOSS: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One job."""

    scenario: Scenario
    barrier: Choice
    change_after: int
    """Global batches."""
    title: str


@dataclass(kw_only=True)
class Row:
    """One job and its results."""

    title: str
    excess: float
    """Held-out loss with the change over that without it, minus 1."""
    verdict: str
    at: int
    guarded_excess: float
    """The same under the guard, which may have reverted the change."""
    reason: str


@dataclass(kw_only=True)
class Run:
    """Counts a job's global batches, changes its barrier during training, and keeps the required part of the log."""

    batch: int
    change_after: int | None
    barrier: Choice
    cluster: Cluster | None = None
    samples: int = 0
    scores: list[tuple[int, float]] = field(default_factory=list)
    """Of evaluations: samples so far, held-out loss."""
    judgements: list[JudgeConvergence] = field(default_factory=list)
    changes: int = 0

    def add(self, entry: Entry, commands: list[AnyCommand]) -> None:
        """One entry of the log and what the engine answered."""
        event = entry.event
        if isinstance(event, WorkerMessageReceived):
            if isinstance(event.message, IterationReport):
                self._count(event.message.samples)
            elif isinstance(event.message, Evaluation):
                loss = event.message.loss
                self.scores.append((self.samples, math.inf if loss is None else loss))
        self.judgements += [each for each in commands if isinstance(each, JudgeConvergence)]
        self.changes += sum(isinstance(each, ChangePolicies) for each in commands)

    def _count(self, samples: int) -> None:
        before = self.samples // self.batch
        self.samples += samples
        due = self.change_after
        if due is not None and before < due <= self.samples // self.batch:
            assert self.cluster is not None
            request = ChangeRequested(actor="bench", choices={"barrier": self.barrier})
            self.cluster.kernel.after(0.0, self.cluster.driver.append, request)

    def final(self, from_batch: int) -> float:
        """Mean held-out loss from that global batch on."""
        found = [loss for samples, loss in self.scores if samples >= from_batch * self.batch]
        return float(np.mean(found)) if found else math.inf


def drawn(seed: int, number: int) -> Drawn:
    """The job of that number."""
    chance = np.random.default_rng([seed, number])
    workers = int(chance.choice([4, 8, 16]))
    batch = int(chance.choice([8, 16, 32]))
    problem = str(chance.choice(["softmax-regression", "mlp"]))
    momentum = float(chance.choice([0.0, 0.0, 0.9]))
    lr = float(np.exp(chance.uniform(np.log(0.05), np.log(1.5)))) * (0.2 if momentum else 1.0)
    step_scale = str(chance.choice(["mean", "paper"]))
    speeds = [1000.0 * float(each) for each in chance.choice([1.0, 1.0, 1.0, 0.5, 0.25], workers)]
    change_after = int(chance.integers(80, 160))
    total = change_after + AFTER
    spec = JobSpec(
        name=f"guard-{number}",
        workload=Workload(name=problem, dataset="digits"),
        workers=workers,
        servers=1,
        batch_size=batch,
        synchronization=Synchronization(),
        evaluate=Evaluate(every=1),
        stop=Stop(iterations=total),
    )
    scenario = Scenario(
        name=spec.name,
        title=spec.name,
        story="A job whose barrier changes in mid-training.",
        spec=spec,
        policies={"bsp": Synchronization()},
        baseline="bsp",
        groups=tuple(Group(count=1, machine=CpuMachine(samples_per_second=each)) for each in speeds),
        wavering=Wavering(noise=0.1),
        numerics=Numerics(
            problem=problem,  # type: ignore[arg-type]
            dataset="digits",
            samples=1400,
            held_out=397,
            features=64,
            classes=10,
            hidden=32,
            optimizer=Optimizer(lr=lr, momentum=momentum),
        ),
    )
    title = f"{problem}, {workers} workers, batch {batch}, lr {lr:.3g}, momentum {momentum:g}, {step_scale}"
    barrier = Choice(name="asp", parameters={"step_scale": step_scale})
    return Drawn(scenario=scenario, barrier=barrier, change_after=change_after, title=title)


def simulated(job: Drawn, seed: int, *, changes: bool, guard: Guard | None = None) -> Run:
    """One run of the job."""
    spec = job.scenario.spec
    run = Run(
        batch=spec.workers * spec.batch_size, change_after=job.change_after if changes else None, barrier=job.barrier
    )
    scenario = replace(job.scenario, spec=replace(spec, guard=guard))
    check(scenario)
    run.cluster = Cluster(scenario, Synchronization(), seed=seed, recording=run)
    run.cluster.run()
    return run


def row(seed: int, number: int) -> Row | None:
    """One job in all three variants; None if it learns too little for a comparison."""
    job = drawn(seed, number)
    first = job.change_after + AFTER - LAST
    plain = simulated(job, seed, changes=False).final(first)
    if not math.isfinite(plain):
        return None
    changed = simulated(job, seed, changes=True).final(first)
    run = simulated(job, seed, changes=True, guard=Guard())
    harmful = [each for each in run.judgements if each.verdict == "harmful"]
    shown = (harmful or run.judgements)[-1:]
    return Row(
        title=job.title,
        excess=changed / max(plain, LEAST_LOSS) - 1.0,
        guarded_excess=run.final(first) / max(plain, LEAST_LOSS) - 1.0,
        verdict=shown[0].verdict if shown else "none",
        at=shown[0].batches if shown else 0,
        reason=shown[0].reason if shown else "",
    )


def missed(harmful: Sequence[Row], harmless: Sequence[Row]) -> list[str]:
    """Missed targets."""
    late = [each for each in harmful if each.verdict != "harmful" or each.at > WITHIN]
    false = [each for each in harmless if each.verdict == "harmful"]
    found = [f"harm of {each.title} was not found within {WITHIN} global batches" for each in late]
    if len(false) > MOST_FALSE:
        found.append(f"{len(false)} false alarms, at most {MOST_FALSE} expected")
    return found


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Draw jobs, print one line for each, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="manage.py bench guard", description=__doc__)
    parser.add_argument(
        "--seed", type=int, required=True, help="of the jobs; none was used to choose the rule's numbers"
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help="half of them harmed (%(default)s)")
    parser.add_argument("--reasons", action="store_true", help="print the evidence of each judgement")
    options = parser.parse_args(arguments)
    stream = out or sys.stdout
    harmful: list[Row] = []
    harmless: list[Row] = []
    undecided = untrained = number = 0
    stream.write(f"{'loss with the change':>20}{'under the guard':>17}  {'verdict':9}{'at':>4}  job\n")
    while len(harmful) < options.jobs // 2 or len(harmless) < options.jobs - options.jobs // 2:
        number += 1
        found = row(options.seed, number)
        if found is None:
            untrained += 1
            continue
        kind = harmful if found.excess > HARMFUL else harmless if found.excess < HARMLESS else None
        if kind is None:
            undecided += 1
            continue
        if len(kind) >= (options.jobs // 2 if kind is harmful else options.jobs - options.jobs // 2):
            continue
        kind.append(found)
        stream.write(
            f"{found.excess:+20.1%}{found.guarded_excess:+17.1%}  {found.verdict:9}{found.at:4}  {found.title}\n"
        )
        if options.reasons:
            stream.write(f"{'':41}{found.reason}\n")
        stream.flush()
    found_at = [each.at for each in harmful if each.verdict == "harmful"]
    false = sum(each.verdict == "harmful" for each in harmless)
    stream.write(
        f"{len(found_at)} of {len(harmful)} harmful changes found, after {int(np.median(found_at or [0]))} global"
        f" batches in the median; {false} false alarms in {len(harmless)} harmless ones. {undecided} jobs were"
        f" in between, {untrained} did not train\n"
    )
    misses = missed(harmful, harmless)
    for line in misses:
        stream.write(f"MISSED: {line}\n")
    return int(bool(misses))


if __name__ == "__main__":
    sys.exit(main())
