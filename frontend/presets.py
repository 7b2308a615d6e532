"""Defines preset job specs and the options of the job form."""

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import msgspec

from controlplane.policies import registry
from controlplane.protocol import catalogue
from controlplane.protocol.autopilot import MODES
from controlplane.protocol.optimizers import OPTIMIZERS
from controlplane.protocol.spec import JobSpec
from controlplane.protocol.training import Aggregation, Division

_DIGITS: dict[str, Any] = {
    "name": "digits",
    "workload": {"name": "softmax-regression", "dataset": "digits"},
    "workers": 4,
    "servers": 2,
    "batch_size": 64,
    "synchronization": {
        "batching": {"name": "lb-bsp-cpu", "predictor": "ema"},
        "barrier": {"name": "bsp"},
        "placement": {"name": "round-robin"},
        "data": {"name": "shared"},
    },
    "optimizer": {"name": "sgd", "lr": 0.1},
    "evaluate": {"every": 20},
    "checkpoint": {"every": 100},
    "stop": {"iterations": 400, "accuracy": 0.95},
    "seed": 7,
}


def _with(**changes: Any) -> dict[str, Any]:
    return _DIGITS | changes


PRESETS: dict[str, dict[str, Any]] = {
    "Balanced: digits under LB-BSP": _DIGITS,
    "Baseline: digits under plain BSP": _with(
        name="digits-bsp", synchronization=_DIGITS["synchronization"] | {"batching": {"name": "uniform"}}
    ),
    "Small convolutional network": _with(
        name="digits-cnn", workload={"name": "cnn", "dataset": "digits"}, stop={"iterations": 300}
    ),
}


CHOICES = ("batching", "barrier", "placement", "data")


@cache
def offered() -> dict[str, Any]:
    """The available choices by kind and name, with explanations and JSON schemas of parameters."""
    policies: dict[str, Any] = {}
    for entry in registry.catalogue():
        policies.setdefault(entry.question, {})[entry.name] = _entry(msgspec.to_builtins(entry))
    workloads = {each["name"]: each for each in catalogue.describe()}
    data = {each["name"]: _entry(each) for entry in workloads.values() for each in entry["data"]}
    return {
        "policies": policies,
        "workloads": {name: _entry(each) | {"datasets": each["datasets"]} for name, each in workloads.items()},
        "datasets": dict(sorted(data.items())),
        "optimizers": sorted(OPTIMIZERS),
    }


def _entry(found: dict[str, Any]) -> dict[str, Any]:
    """The fields of a catalogue entry that the form uses."""
    kept = {name: found[name] for name in ("name", "explanation", "paper", "parts") if found.get(name)}
    return kept | {"schema": {"properties": found["schema"].get("properties", {})}}


def details() -> dict[str, list[str]]:
    """Values of other spec fields, without the default."""
    kinds = {info.name: info.type for info in msgspec.structs.fields(JobSpec)}
    return {
        "communication": [word for word in get_args(kinds["communication"]) if word != "servers"],
        "server_mode": [word for word in get_args(kinds["server_mode"]) if word != "stateful"],
        "aggregation": list(get_args(Aggregation)),
        "autopilot": list(MODES),
        "partition": list(get_args(Division)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One of the four kinds of policies, with the available policies."""

    name: str
    explanation: str
    entries: tuple[registry.CatalogueEntry, ...]


@cache
def questions() -> list[Question]:
    """The four kinds of policies with the available policies of each."""
    entries = registry.catalogue()
    return [
        Question(
            name=name,
            explanation=registry.QUESTIONS[name],
            entries=tuple(entry for entry in entries if entry.question == name),
        )
        for name in CHOICES
    ]
