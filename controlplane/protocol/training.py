"""The parts of a spec that say what is trained, on which samples, and how an iteration's sums become a step."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from controlplane.protocol.base import Fraction, Name, Word
from controlplane.protocol.parts import Iterations, Part, Penalty, Rate

Division = Literal["iid", "by-label", "two-shards", "by-writer"]
"""How the samples are divided where each worker keeps its own."""

Aggregation = Literal["sample-weighted", "naive", "fedavg", "fedavg-scaled-steps", "fedavg-scaled-rate"]
"""What each contribution weighs: the rules of ``policies.aggregation`` by name."""

EQUAL: frozenset[Aggregation] = frozenset({"naive", "fedavg", "fedavg-scaled-steps", "fedavg-scaled-rate"})
"""Rules by which every contribution of any samples weighs the same."""

FEDERATED: tuple[Aggregation, ...] = ("fedavg", "fedavg-scaled-steps", "fedavg-scaled-rate")
"""Rules for clients that take local steps."""


Init = Literal["module", "seed"]
"""What training begins with: the values that a module was built with, or some that only depend on the job's seed."""


class Workload(Part, frozen=True, kw_only=True):
    """What is trained on what: ``module:factory`` or a catalogue name, a data set, and options of either."""

    name: Name
    dataset: Name = "digits"
    options: dict[Word, Any] = {}
    data: dict[Word, Any] = {}
    """Options of the data set."""
    partition: Division | None = None
    """Each worker draws from samples of its own, divided so; None: any worker may draw any sample."""
    init: Init | None = None
    """What training begins with; None: the seed with a catalogue name, else what the factory chose (a module's own)."""
    prefetch: Annotated[
        int, Meta(ge=0, le=16, description="Iterations whose samples are taken ahead while one computes; 0: none.")
    ] = 1


class Schedule(Part, frozen=True, kw_only=True):
    """How the learning rate changes with the steps that the parameters have made."""

    name: Literal["constant", "step", "cosine", "inverse-sqrt"] = "constant"
    warm_up: Annotated[int, Meta(ge=0, le=10**9, description="Steps in which the rate grows to its full size.")] = 0
    every: Annotated[Iterations, Meta(description="`step`: after so many steps the rate is multiplied.")] = 1000
    factor: Annotated[float, Meta(gt=0.0, le=1.0, description="`step`: by how much.")] = 0.1
    over: Annotated[Iterations, Meta(description="`cosine`: the steps in which it falls to `floor`.")] = 1000
    floor: Annotated[Fraction, Meta(description="`cosine`: the share of the rate that is left in the end.")] = 0.0


class Optimizer(Part, frozen=True, kw_only=True):
    """A torch optimiser, applied to the mean of an iteration's gradients by whoever holds the parameters."""

    name: Name = "sgd"
    lr: Rate = 0.1
    momentum: Fraction = 0.0
    weight_decay: Penalty = 0.0
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Annotated[float, Meta(gt=0.0, le=1.0)] = 1e-8
    schedule: Schedule = Schedule()


class Federated(Part, frozen=True, kw_only=True):
    """Rounds of local steps (FedAvg): ``optimizer`` is the clients', ``server`` what becomes of their mean change."""

    local_steps: Annotated[int, Meta(ge=1, le=10_000)] = 5
    """tau: the steps that a client takes between two synchronisations."""
    server: Optimizer = Optimizer(lr=1.0)
