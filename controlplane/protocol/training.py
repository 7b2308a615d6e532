"""The parts of a spec for the workload, its data, and the step from an iteration's sums."""

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


Precision = Literal["fp32", "bf16", "fp16"]


class Workload(Part, frozen=True, kw_only=True):
    """The model and data: ``module:factory`` or a catalogue name, a data set, and the options of both."""

    name: Name
    dataset: Name = "digits"
    options: dict[Word, Any] = {}
    data: dict[Word, Any] = {}
    """Options of the data set."""
    partition: Division | None = None
    """Each worker draws from its own samples, divided so; None: any worker may draw any sample."""
    init: Init | None = None
    """What training begins with; None: the seed with a catalogue name, else what the factory chose (a module's own)."""
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
    """Parameters with options of their own. A parameter belongs to the first group that matches its name."""

    parameters: Word | Annotated[list[Word], Meta(max_length=10_000)]
    """Names as torch has them, with ``*``, ``?`` and ``[...]`` as in a shell."""
    name: Name | None = None
    """Another optimizer; it takes only the options that are written here."""
    lr: Annotated[float, Meta(ge=0.0, le=1e6)] | None = None
    weight_decay: Penalty | None = None
    options: dict[str, Any] = {}


class Optimizer(Part, frozen=True, kw_only=True):
    """A torch optimizer, applied to the mean of an iteration's gradients by the process that holds the parameters.

    ``momentum`` to ``epsilon`` are short for the options that torch has under these or similar names.
    """

    name: Name = "sgd"
    """Any of torch.optim that ``optimizers`` knows, or ``module:factory``."""
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
    """tau: the steps that a client takes between two synchronisations."""
    server: Optimizer = Optimizer(lr=1.0)
