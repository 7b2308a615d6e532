"""``manage.py bench autopilot --seed N``: time to target of the autopilot, against BSP and every policy it may choose.

Twelve jobs are drawn from the seed. BSP trains each for a number of iterations, and the loss that it ends with is the
job's target; then each policy that the spec allows runs until the target by itself, and so does the autopilot, which
begins with BSP. Engine, policies and the autopilot's decisions are the live ones; its simulations take virtual time.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, TextIO

from msgspec.structs import replace

from benchmarks.offline.autopilot_scenarios import scenario
from controlplane.core.commands import AnyCommand, JudgeAlternatives, MeasureSwitch, PlayAlternatives
from controlplane.core.events import Entry
from controlplane.policies.autopilot.alternatives import alternatives
from controlplane.protocol.spec import Stop
from controlplane.simulator.garbage_collection import rare_garbage_collection
from controlplane.simulator.numerics.settings import Target
from controlplane.simulator.running import play
from controlplane.simulator.scenario import Scenario

SCENARIOS: Final = 12
ITERATIONS: Final = 600
LONGER: Final = 4
"""A policy that needs this multiple of BSP's iterations counts as not reaching the target."""
MEDIAN_BAR, WORST_BAR, BSP_BAR = 1.05, 1.15, 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job. Times to its target in virtual seconds; None: it was not reached."""

    title: str
    seed: int
    bsp_s: float
    fixed_s: dict[str, float | None]
    autopilot_s: float | None
    switches: list[str]
    looks: int
    returns: int
    iterations: int
    """Of BSP, until the target."""

    @property
    def best(self) -> tuple[str, float]:
        """The best of the fixed policies."""
        return min(((name, s) for name, s in self.fixed_s.items() if s is not None), key=lambda each: each[1])

    @property
    def of_best(self) -> float:
        """The autopilot's time over that of the best."""
        return float("inf") if self.autopilot_s is None else self.autopilot_s / self.best[1]

    @property
    def of_bsp(self) -> float:
        """The autopilot's time over that of BSP."""
        return float("inf") if self.autopilot_s is None else self.autopilot_s / self.bsp_s


class Decisions:
    """The autopilot's decisions among all commands of a run."""

    def __init__(self) -> None:
        self.switches: list[str] = []
        self.looks = self.returns = 0
        self.said: list[str] = []

    def add(self, entry: Entry, commands: list[AnyCommand]) -> None:
        """One entry and what the engine answered."""
        for command in commands:
            if isinstance(command, PlayAlternatives):
                self.looks += 1
            elif isinstance(command, JudgeAlternatives):
                self.said.append(f"{command.iteration}: {command.reason}")
                self.switches += [command.chosen] if command.switches else []
            elif isinstance(command, MeasureSwitch):
                self.said.append(f"{command.iteration}: {command.reason}")
                self.returns += command.goes_back


def job(seed: int, number: int, iterations: int, detail: TextIO | None = None) -> Row:
    """One job under each policy that it may use, and under the autopilot."""
    drawn = scenario(seed, number, iterations=iterations)
    spec = drawn.spec
    assert spec.autopilot is not None
    plain = replace(drawn, spec=replace(spec, autopilot=None))
    bsp = play(plain, "bsp", seed=seed)
    assert bsp.mathematics is not None
    scores = bsp.mathematics.scores
    loss = min(score[2] for score in scores if score[2] is not None)
    assert drawn.numerics is not None
    numerics = replace(drawn.numerics, target=Target(loss=loss * 1.0001))
    longer = Stop(iterations=LONGER * iterations)
    chosen = alternatives(spec, spec.autopilot)
    plain = replace(
        plain,
        spec=replace(plain.spec, stop=longer),
        numerics=numerics,
        policies={"bsp": spec.synchronization, **chosen},
    )
    fixed = {name: _time(plain, name, seed)[0] for name in chosen}
    bsp_s, needed = _time(plain, "bsp", seed)
    decisions = Decisions()
    own = replace(plain, spec=replace(spec, stop=longer))
    took_s, _ = _time(own, "bsp", seed, decisions)
    if detail is not None:
        for line in decisions.said:
            detail.write(f"    {line}\n")
    return Row(
        title=drawn.title,
        seed=seed,
        bsp_s=bsp_s or float("inf"),
        fixed_s=fixed,
        autopilot_s=took_s,
        switches=decisions.switches,
        looks=decisions.looks,
        returns=decisions.returns,
        iterations=needed,
    )


def _time(found: Scenario, policy: str, seed: int, recorder: Decisions | None = None) -> tuple[float | None, int]:
    """When the target was reached, and after how many versions."""
    cluster = play(found, policy, seed=seed, recording=recorder, until_target=True)
    assert cluster.mathematics is not None
    reached = cluster.mathematics.reached
    return reached[0] - cluster.began_s if reached else None, cluster.servers.version


def main(arguments: Sequence[str] | None = None, out: TextIO | None = None) -> int:
    """Exit code 1: a bar was missed."""
    options = _options(arguments)
    out = out or sys.stdout
    rows = []
    with rare_garbage_collection():
        for number in range(options.scenarios):
            rows.append(job(options.seed, number, options.iterations, out if options.detail else None))
            if not options.json:
                out.write(_line(number, rows[-1]))
                out.flush()
    failures = missed(rows)
    if options.json:
        out.write(json.dumps({"rows": [asdict(row) for row in rows], "failures": failures}) + "\n")
    else:
        ratios = sorted(row.of_best for row in rows)
        out.write(
            f"over the best fixed policy: median {statistics.median(ratios):.3f}, worst {ratios[-1]:.3f}; "
            f"over BSP: worst {max(row.of_bsp for row in rows):.3f}, median "
            f"{statistics.median(row.of_bsp for row in rows):.3f}\n"
        )
        out.writelines(f"MISSED: {failure}\n" for failure in failures)
    return 1 if failures else 0


def missed(rows: Sequence[Row]) -> list[str]:
    """The bars that these rows miss."""
    ratios = [row.of_best for row in rows]
    found = []
    if (median := statistics.median(ratios)) > MEDIAN_BAR:
        found.append(f"median {median:.3f} of the best fixed policy's time, at most {MEDIAN_BAR} is allowed")
    if (worst := max(ratios)) > WORST_BAR:
        found.append(f"worst {worst:.3f} of the best fixed policy's time, at most {WORST_BAR} is allowed")
    if (worst := max(row.of_bsp for row in rows)) > BSP_BAR:
        found.append(f"worst {worst:.3f} of BSP's time, at most {BSP_BAR} is allowed")
    return found


def _line(number: int, row: Row) -> str:
    fixed = ", ".join(f"{name} {'-' if s is None else f'{s:.0f}'}" for name, s in row.fixed_s.items())
    own = "-" if row.autopilot_s is None else f"{row.autopilot_s:.0f} s"
    done = f"{row.looks} simulations, {' > '.join(row.switches) or 'no switch'}, {row.returns} taken back"
    return (
        f"{number:2} {row.title}, {row.iterations} iterations of BSP\n"
        f"   autopilot {own}: {row.of_best:.3f} of {row.best[0]}, {row.of_bsp:.3f} of BSP; {done}\n   {fixed}\n"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="manage.py bench autopilot", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the jobs (default: %(default)s)")
    parser.add_argument("--scenarios", type=int, default=SCENARIOS, help="how many jobs (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of BSP, to its target (%(default)s)")
    parser.add_argument("--detail", action="store_true", help="every decision of the autopilot")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
