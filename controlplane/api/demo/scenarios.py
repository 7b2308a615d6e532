"""What the demo can show: machines, a job, and the two ways of running it that are compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SPEEDS = (1000.0, 1000.0, 500.0, 250.0)
"""Samples per second of the emulated machines: the slowest takes four times as long for the same share."""

BALANCED = {"name": "lb-bsp-cpu", "predictor": "ema"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One of the two submissions."""

    label: str
    batching: Mapping[str, Any]


BASELINE = Run(label="BSP", batching={"name": "uniform"})
CHALLENGER = Run(label="LB-BSP", batching=BALANCED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A job on machines, to be run under BSP and under LB-BSP."""

    name: str
    summary: str
    workload: str
    lr: float
    iterations: int
    target: float
    """The accuracy to which both runs are timed."""
    least: float = 0.90
    """The accuracy that both must have at the end."""
    batch_size: int = 64
    servers: int = 2
    evaluate_every: int = 10
    speeds: tuple[float, ...] = SPEEDS

    def spec(self, run: Run, *, iterations: int) -> dict[str, Any]:
        """The job as it is submitted."""
        return {
            "name": f"{self.name} {run.label}",
            "workload": {"name": self.workload, "dataset": "digits"},
            "workers": len(self.speeds),
            "servers": self.servers,
            "batch_size": self.batch_size,
            "synchronization": {"batching": dict(run.batching), "barrier": {"name": "bsp"}},
            "optimizer": {"name": "sgd", "lr": self.lr},
            "evaluate": {"every": self.evaluate_every},
            "stop": {"iterations": iterations},
            "seed": 7,
        }

    def proportional_shares(self) -> list[float]:
        """The shares under which all machines would take equally long."""
        total = self.batch_size * len(self.speeds)
        return [total * speed / sum(self.speeds) for speed in self.speeds]


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="digits",
            summary="softmax regression on handwritten digits",
            workload="softmax-regression",
            lr=0.1,
            iterations=150,
            target=0.92,
        ),
        Scenario(
            name="cnn",
            summary="a small convolutional network on handwritten digits",
            workload="cnn",
            lr=0.1,
            iterations=150,
            target=0.95,
        ),
    )
}
