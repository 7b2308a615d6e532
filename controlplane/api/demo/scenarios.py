"""The demo's scenarios: machines, a job, and the two configurations that are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SPEEDS = (1000.0, 1000.0, 500.0, 250.0)
"""Samples per second of the emulated machines: the slowest takes four times as long for the same share."""

BALANCED = {"name": "lb-bsp-cpu", "predictor": "ema"}


PLAIN: Mapping[str, Mapping[str, Any]] = {
    "batching": {"name": "uniform"},
    "barrier": {"name": "bsp"},
    "placement": {"name": "round-robin"},
    "data": {"name": "shared"},
}
"""The policies of the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One of the two submissions."""

    label: str
    choices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The policies that differ from the baseline's, by kind."""

    def name_of(self, question: str) -> str:
        """The policy of that kind."""
        return str((self.choices.get(question) or PLAIN[question])["name"])


BASELINE = Run(label="BSP")
CHALLENGER = Run(label="LB-BSP", choices={"batching": BALANCED})


def chosen_run(names: Mapping[str, str]) -> Run:
    """The policies given on the command line, each with its defaults, but with the demo's predictor."""
    choices = {question: {"name": name} for question, name in names.items() if name != PLAIN[question]["name"]}
    if names.get("batching") == BALANCED["name"]:
        choices["batching"] = dict(BALANCED)
    return Run(label=" + ".join(choice["name"] for choice in choices.values()) or "BSP again", choices=choices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A job on machines, to be run under BSP and under LB-BSP."""

    name: str
    summary: str
    workload: str
    lr: float
    iterations: int
    target: float
    """The accuracy up to which both runs are timed."""
    least: float = 0.90
    """The accuracy that both must reach at the end."""
    batch_size: int = 64
    servers: int = 2
    evaluate_every: int = 10
    speeds: tuple[float, ...] = SPEEDS

    def spec(self, run: Run, *, iterations: int) -> dict[str, Any]:
        """The job's spec as it is submitted."""
        return {
            "name": f"{self.name} {run.label}",
            "workload": {"name": self.workload, "dataset": "digits"},
            "workers": len(self.speeds),
            "servers": self.servers,
            "batch_size": self.batch_size,
            "synchronization": {question: dict(choice) for question, choice in {**PLAIN, **run.choices}.items()},
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
