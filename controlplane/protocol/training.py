"""The sections of a spec for the workload, its data, and the optimizer."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from controlplane.protocol.base import Fraction, Name, Word
from controlplane.protocol.parts import Iterations, Part, Penalty, Rate

Division = Literal["iid", "by-label", "two-shards", "by-writer"]
"""How samples are divided if each worker keeps its own."""

Aggregation = Literal["sample-weighted", "naive", "fedavg", "fedavg-scaled-steps", "fedavg-scaled-rate"]
"""The weight of each contribution: the rules of ``policies.aggregation`` by name."""

EQUAL: frozenset[Aggregation] = frozenset({"naive", "fedavg", "fedavg-scaled-steps", "fedavg-scaled-rate"})
"""Rules with equal weights, regardless of the number of samples."""

FEDERATED: tuple[Aggregation, ...] = ("fedavg", "fedavg-scaled-steps", "fedavg-scaled-rate")
"""Rules for clients that take local steps."""


Init = Literal["module", "seed"]
"""Initial parameters: the values of the module as built, or values that only depend on the job's seed."""


Precision = Literal["fp32", "bf16", "fp16"]


class Workload(Part, frozen=True, kw_only=True):
    """The model and data: ``module:factory`` or a catalogue name, a dataset, and the options of both."""

    name: Name
    dataset: Name = "digits"
    options: dict[Word, Any] = {}
    data: dict[Word, Any] = {}
    """Options of the data set."""
    partition: Division | None = None
    """Each worker draws only from its own samples, divided in this way; None: any worker may draw any sample."""
    init: Init | None = None
    """Initial parameters; None: from the seed with a catalogue name, else the factory's choice (a module's own)."""
    precision: Annotated[
        Precision,
        Meta(
            description="Type in which forward and backward passes compute; parameters, sums and optimizer are fp32. "
            "With `communication: all-reduce` gradients travel as bf16 unless it is fp32."
        ),
    ] = "fp32"
    prefetch: Annotated[
        int, Meta(ge=0, le=16, description="Number of iterations whose samples are loaded ahead; 0: none.")
    ] = 1


class Schedule(Part, frozen=True, kw_only=True):
    """Learning-rate schedule, as a function of the optimizer steps; ``optimizers`` lists the names."""

    name: Name = "constant"
    warm_up: Annotated[int, Meta(ge=0, le=10**9, description="Number of steps of linear warm-up.")] = 0
    every: Annotated[Iterations, Meta(description="`step`, `exponential`: number of steps between two decays.")] = 1000
    at: Annotated[list[Iterations], Meta(description="`multistep`: steps after which the rate decays.")] = []
    factor: Annotated[float, Meta(gt=0.0, le=1.0, description="Factor of each decay.")] = 0.1
    over: Annotated[
        Iterations,
        Meta(
            description="`cosine`, `linear`, `polynomial`, `one-cycle`: number of steps of the whole schedule. "
            "`cosine-restarts`: of the first cycle."
        ),
    ] = 1000
    floor: Annotated[Fraction, Meta(description="Final rate, as a fraction of the initial rate.")] = 0.0
    times: Annotated[
        int,
        Meta(
            ge=1, le=100, description="`cosine-restarts`: factor by which each cycle is longer than the previous one."
        ),
    ] = 1
    power: Annotated[float, Meta(gt=0.0, le=100.0, description="`polynomial`: its exponent.")] = 1.0
    begin: Annotated[Fraction, Meta(description="`one-cycle`: initial rate, as a fraction of the maximum.")] = 0.04
    rise: Annotated[
        float, Meta(gt=0.0, lt=1.0, description="`one-cycle`: fraction of the steps in which the rate rises.")
    ] = 0.3


class Clip(Part, frozen=True, kw_only=True):
    """Gradient clipping before a step: of the norm over all parameters, or of each element."""

    norm: Annotated[float, Meta(gt=0.0, le=1e9)] | None = None
    value: Annotated[float, Meta(gt=0.0, le=1e9)] | None = None


class Group(Part, frozen=True, kw_only=True):
    """Parameters with their own options. A parameter belongs to the first group that matches its name."""

    parameters: Word | Annotated[list[Word], Meta(max_length=10_000)]
    """Torch's names, with the shell wildcards ``*``, ``?`` and ``[...]``."""
    name: Name | None = None
    """Another optimizer; it uses only the options that are written here."""
    lr: Annotated[float, Meta(ge=0.0, le=1e6)] | None = None
    weight_decay: Penalty | None = None
    options: dict[str, Any] = {}


class Optimizer(Part, frozen=True, kw_only=True):
    """A torch optimizer, applied to the mean of an iteration's gradients by the process that holds the parameters.

    ``momentum`` to ``epsilon`` are short for the options that torch has under these or similar names.
    """

    name: Name = "sgd"
    """Any of torch.optim in ``optimizers``, or ``module:factory``."""
    lr: Rate | None = None
    """None: 0.1 for sgd, else torch's own."""
    options: dict[str, Any] = {}
    groups: Annotated[list[Group], Meta(max_length=1_000)] = []
    clip: Clip | None = None
    momentum: Fraction | None = None
    weight_decay: Penalty | None = None
    beta1: Fraction | None = None
    beta2: Fraction | None = None
    epsilon: Annotated[float, Meta(gt=0.0, le=1.0)] | None = None
    schedule: Schedule = Schedule()


class Federated(Part, frozen=True, kw_only=True):
    """Federated averaging: rounds of local steps. ``optimizer`` is the clients', ``server`` the server's."""

    local_steps: Annotated[int, Meta(ge=1, le=10_000)] = 5
    """tau: the steps of a client between two synchronizations."""
    server: Optimizer = Optimizer(lr=1.0)
