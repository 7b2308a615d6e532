"""Job specs to start from, and the options of the job form."""

from typing import Any, get_args

import msgspec

from controlplane.policies import registry
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
PREDICTOR = "synchronization.batching.predictor"


def options() -> dict[str, list[str]]:
    """The options of each field, by the field's path in a spec."""
    entries = registry.catalogue()
    choices = {
        f"synchronization.{question}.name": [entry.name for entry in entries if entry.question == question]
        for question in CHOICES
    }
    usual = _DIGITS["synchronization"]["batching"]["predictor"]
    predictors = [entry.name for entry in entries if entry.question == "prediction"]
    return choices | {PREDICTOR: sorted(predictors, key=lambda name: (name != usual, name))}


def details() -> dict[str, list[str]]:
    """Values of other fields of a spec, without the default one."""
    kinds = {info.name: info.type for info in msgspec.structs.fields(JobSpec)}
    return {
        "communication": [word for word in get_args(kinds["communication"]) if word != "servers"],
        "server_mode": [word for word in get_args(kinds["server_mode"]) if word != "stateful"],
        "aggregation": list(get_args(Aggregation)),
        "partition": list(get_args(Division)),
    }


def questions() -> dict[str, list[str]]:
    """The policies of each of the four kinds."""
    entries = registry.catalogue()
    return {question: [entry.name for entry in entries if entry.question == question] for question in CHOICES}


def predicting() -> list[str]:
    """The batching policies that use a predictor."""
    entries = registry.catalogue()
    return [entry.name for entry in entries if entry.question == "batching" and "predictor" in entry.parts]
