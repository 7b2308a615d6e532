"""``manage.py bench twin``: the demo on real processes against what the simulator predicts for it.

Both run the same job on machines of the same speeds, under BSP and under LB-BSP; compared is the mean iteration time
past the warm-up. The simulated machines know nothing of this machine's load: what makes the demo slower than it should
be is in the difference.
"""

import json
import os
from dataclasses import dataclass
from typing import Any, Final

from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.processes import run_command
from controlplane.simulator.running import simulate
from controlplane.simulator.scenarios import find

SCENARIO: Final = "demo"
PAIRS: Final = (("BSP", "bsp"), ("LB-BSP", "lb-bsp-cpu"))
"""The demo's runs, and the scenario's policies that they are."""
BAR: Final = 0.10
LIMIT_S: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One run, measured and predicted."""

    label: str
    measured_s: float
    """Mean iteration time."""
    predicted_s: float

    @property
    def error(self) -> float:
        """Of the prediction, as a part of what was measured."""
        return self.predicted_s / self.measured_s - 1.0


def measure() -> dict[str, Any]:
    """Run the demo, simulate it, and compare.

    Raises:
        CannotStart: if the demo could not run to its end.
    """
    runs = {run["label"]: run["mean_iteration_s"] for run in _demo()["runs"]}
    scenario = find(SCENARIO)
    pairs = [
        Pair(label=label, measured_s=runs[label], predicted_s=simulate(scenario, policy).iteration_s)
        for label, policy in PAIRS
    ]
    return document(pairs)


def document(pairs: list[Pair]) -> dict[str, Any]:
    """The figures, and the bars that were missed."""
    rows = [
        {"run": pair.label, "measured_s": pair.measured_s, "predicted_s": pair.predicted_s, "error": pair.error}
        for pair in pairs
    ]
    failures = [
        f"{pair.label}: predicted {pair.predicted_s:.4f} s, measured {pair.measured_s:.4f} s, "
        f"{pair.error:+.1%}; at most {BAR:.0%} is asked for"
        for pair in pairs
        if abs(pair.error) > BAR
    ]
    return {"rows": rows, "failures": failures}


def table(found: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{'':10}{'measured':>12}{'predicted':>12}{'error':>9}"]
    for row in found["rows"]:
        measured, predicted = row["measured_s"] * 1000, row["predicted_s"] * 1000
        lines.append(f"{row['run']:10}{measured:9.1f} ms{predicted:9.1f} ms{row['error']:+9.1%}")
    return "\n".join(lines)


def _demo() -> dict[str, Any]:
    """What ``demo --json`` printed; its own bars are not ours, but for a job that did not end."""
    command = [*MANAGE, "demo", "--exit", "--json", "--port", "0"]
    printed = run_command("the demo", command, environment=os.environ, folder=CHECKOUT, seconds=LIMIT_S)
    try:
        found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise CannotStart(f"The demo printed no result: {printed[-500:]}") from None
    return found
