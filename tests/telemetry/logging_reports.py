"""Reports of iterations with series that a script has logged."""

from typing import Any

from controlplane.protocol.messages import IterationReport


def report(iteration: int, *, number: int = 1, generation: int = 1, **series: float) -> IterationReport:
    times = dict.fromkeys(("compute_s", "push_s", "pull_s", "waiting_s", "coordination_s"), 0.1)
    fields: dict[str, Any] = {"samples": 8, "position": 8 * iteration, "loss": 1.0, "cpu": 0.1, "memory": 0.1}
    return IterationReport(number=number, generation=generation, iteration=iteration, logged=series, **fields, **times)
