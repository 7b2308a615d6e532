"""``manage.py bench twin``: the demo on real processes compared with the simulator's prediction.

The demo runs a job under BSP, then under LB-BSP. From the speeds of the machines alone the simulator knows only the
computation time. Exchanges, decisions and two cores for ten processes cost a few milliseconds per iteration, which BSP
hides behind its slowest worker and LB-BSP does not. They are learned from BSP's run, as by ``manage.py whatif``; the
target is for the resulting prediction of LB-BSP, which does not use LB-BSP's run.
"""

import json
import os
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.processes import run_command
from controlplane.simulator.running import simulate
from controlplane.simulator.scenarios import find

SCENARIO: Final = "demo"
BSP, BALANCED = "bsp", "lb-bsp-cpu"
"""The demo's runs, by the names of the scenario's policies; they are jobs 1 and 2 of its database."""
BAR: Final = 0.10
LIMIT_S: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One run, measured and predicted."""

    label: str
    measured_s: float
    """Mean iteration time."""
    predicted_s: float
    is_judged: bool = True

    @property
    def error(self) -> float:
        """Error of the prediction, relative to the measurement."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def is_missed(self) -> bool:
        """Whether the error exceeds the target."""
        return self.is_judged and abs(self.error) > BAR


def run(_: Namespace) -> dict[str, Any]:
    """Run the demo, simulate it, and compare.

    Raises:
        CannotStart: if the demo could not run to its end.
    """
    with TemporaryDirectory(prefix="paceline-twin-") as folder:
        kept = Path(folder, "demo")
        runs = {run["label"]: run["mean_iteration_s"] for run in _demo(kept)["runs"]}
        from_bsp, balanced = _what_if(kept, 1), _what_if(kept, 2)
    by_speeds = {policy: simulate(find(SCENARIO), policy).iteration_s for policy in (BSP, BALANCED)}
    learned = next(way["iteration_s"] for way in from_bsp["alternatives"] if way["name"] == BALANCED)
    return document(
        [
            Pair(label="BSP, by speeds", measured_s=runs["BSP"], predicted_s=by_speeds[BSP]),
            Pair(
                label="LB-BSP, by speeds", measured_s=runs["LB-BSP"], predicted_s=by_speeds[BALANCED], is_judged=False
            ),
            Pair(label="LB-BSP, from BSP's run", measured_s=balanced["fit"]["recorded_s"], predicted_s=learned),
        ]
    )


def document(pairs: list[Pair]) -> dict[str, Any]:
    """The results, and the missed targets."""
    rows = [
        {"run": pair.label, "measured_s": pair.measured_s, "predicted_s": pair.predicted_s, "error": pair.error}
        for pair in pairs
    ]
    failures = [
        f"{pair.label}: predicted {pair.predicted_s:.4f} s, measured {pair.measured_s:.4f} s, "
        f"{pair.error:+.1%}; at most {BAR:.0%} is asked for"
        for pair in pairs
        if pair.is_missed
    ]
    return {"rows": rows, "failures": failures}


def table(found: dict[str, Any]) -> str:
    """The results as a table."""
    lines = [f"{'':24}{'measured':>12}{'predicted':>12}{'error':>9}"]
    for row in found["rows"]:
        measured, predicted = row["measured_s"] * 1000, row["predicted_s"] * 1000
        lines.append(f"{row['run']:24}{measured:9.1f} ms{predicted:9.1f} ms{row['error']:+9.1%}")
    return "\n".join(lines)


def _demo(folder: Path) -> dict[str, Any]:
    """What ``demo --json`` printed; its own bars are not ours, but for a job that did not end."""
    command = [*MANAGE, "demo", "--exit", "--json", "--port", "0", "--keep", str(folder)]
    return _printed("the demo", command, {})


def _what_if(folder: Path, job: int) -> dict[str, Any]:
    """The prediction for LB-BSP from the job's record."""
    command = [*MANAGE, "whatif", str(job), "--policies", BALANCED, "--without", "", "--json"]
    return _printed("what-if", command, {"PACELINE_DATA_DIR": str(folder), "DATABASE_URL": ""})


def _printed(name: str, command: list[str], settings: dict[str, str]) -> dict[str, Any]:
    printed = run_command(name, command, environment=os.environ | settings, folder=CHECKOUT, seconds=LIMIT_S)
    try:
        found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise CannotStart(f"{name} printed no result: {printed[-500:]}") from None
    return found
