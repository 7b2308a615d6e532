"""What can be set about each policy: types, ranges, defaults and a sentence each.

They live apart from the policies so that the registry can check and describe them without importing the policies
(some of which load torch). Every field has a default: a bare name is a complete choice.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

from controlplane.protocol.spec import Part


class NoParameters(Part, frozen=True, kw_only=True):
    """Nothing can be set."""


PREDICTOR = Meta(
    description="What predicts the speeds: a predictor's name, or its name with parameters.",
    examples=["ema", {"name": "ema", "alpha": 0.2}],
)


class LbBspCpuParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy lb-bsp-cpu."""

    predictor: Annotated[str | dict[str, Any], PREDICTOR] = "narx"
    shadows: Annotated[
        list[str | dict[str, Any]],
        Meta(description="Predictors that run beside it on the same observations, for comparison and promotion."),
    ] = []
    score_every: Annotated[
        int, Meta(ge=1, le=10_000, description="Iterations after which the errors of all of them are recorded.")
    ] = 50
    literal: Annotated[
        bool,
        Meta(description="New shares after every iteration, as Alg. 1 is written, also where they gain nothing."),
    ] = False

    def __post_init__(self) -> None:
        names = [one if isinstance(one, str) else one.get("name") for one in (self.predictor, *self.shadows)]
        if len(set(names)) < len(names):
            raise ValueError(f"each predictor once (found {', '.join(map(str, names))})")


class EmaParameters(Part, frozen=True, kw_only=True):
    """Parameters of the predictor ema."""

    alpha: Annotated[float, Meta(gt=0.0, le=1.0, description="Weight of the latest observation.")] = 0.2


class ArimaParameters(Part, frozen=True, kw_only=True):
    """Parameters of the predictor arima."""

    p: Annotated[int, Meta(ge=0, le=10, description="Order of the autoregressive part.")] = 2
    d: Annotated[int, Meta(ge=0, le=3, description="How often the series is differenced.")] = 2
    q: Annotated[int, Meta(ge=0, le=10, description="Order of the moving average part.")] = 1


LEAST_TARGETS = 3
"""How many iterations more than it looks back a recurrent predictor is trained on, at least."""


class RecurrentParameters(Part, frozen=True, kw_only=True):
    """Parameters of the predictors narx, rnn and lstm."""

    look_back: Annotated[int, Meta(ge=1, le=20, description="Past iterations that it looks at.")] = 2
    hidden: Annotated[int, Meta(ge=1, le=64, description="Units of its one hidden layer.")] = 8
    samples: Annotated[
        int,
        Meta(ge=20, le=10_000, description="It is first trained after so many iterations, and on the last so many."),
    ] = 500
    retrain_every: Annotated[int, Meta(ge=0, description="Retraining interval in iterations; 0: trained once.")] = 100
    alpha: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Weight of the latest observation in the EMA that predicts until then.")
    ] = 0.2

    def __post_init__(self) -> None:
        # The look-back and the coming iteration's readings, one target to learn from and one that is held back.
        if self.samples < self.look_back + LEAST_TARGETS:
            raise ValueError(
                f"samples of at least {self.look_back + LEAST_TARGETS}, which a look_back of {self.look_back} takes"
                f" (found {self.samples}): with fewer it can never be trained"
            )


class RegressionParameters(Part, frozen=True, kw_only=True):
    """Parameters of the predictor regression."""

    alpha: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Weight of the latest observation in each worker's level.")
    ] = 0.2
    forgetting: Annotated[
        float, Meta(ge=0.9, le=1.0, description="Weight of an iteration against the next in the common slopes.")
    ] = 0.998


class ArrivalParameters(Part, frozen=True, kw_only=True):
    """Parameters of the barrier asp, and what all asynchronous ones have in common."""

    step_scale: Annotated[
        Literal["auto", "mean", "average", "paper"] | float | None,
        Meta(
            description="What an update does when it is applied by itself. mean: 1 / workers of a step; average: as "
            "many as there are workers are added up and make one step; paper: a whole step (PSP); a number: that part "
            "of a step; auto or null: mean for plain SGD, average for every other optimizer, which then follow bsp at "
            "equal samples."
        ),
    ] = None

    def __post_init__(self) -> None:
        if isinstance(self.step_scale, int | float) and not 0.0 < self.step_scale <= 1.0:
            raise ValueError(
                f"step_scale of auto, mean, average, paper, or above 0 and at most 1 (found {self.step_scale})"
            )


class SspParameters(ArrivalParameters, frozen=True, kw_only=True):
    """Parameters of the barrier ssp."""

    staleness: Annotated[int, Meta(ge=0, description="Iterations that a worker may be ahead of the slowest.")] = 5


class PbspParameters(ArrivalParameters, frozen=True, kw_only=True):
    """Parameters of the barrier pbsp, and what pssp has in common with it."""

    sample: Annotated[
        int, Meta(ge=0, description="How many of the other workers are sampled: 0 is asp, all others is bsp or ssp.")
    ] = 4
    strategy: Annotated[
        Literal["dynamic", "fixed", "grouped"],
        Meta(
            description="For each iteration; or one subset for the whole job; or for each iteration, equal numbers of "
            "the slow and the fast."
        ),
    ] = "dynamic"
    resample: Annotated[
        Literal["redrawn", "held"],
        Meta(description="Whether a waiting worker tries new samples, or waits until all of its first have passed."),
    ] = "redrawn"
    recheck: Annotated[
        float,
        Meta(
            ge=0.0,
            le=100.0,
            description="With new samples: how long until the next try, in iteration times of the waiting worker, "
            "unless one of those it waits for reports before; 0: only then.",
        ),
    ] = 0.25
    threshold_s: Annotated[
        float | None,
        Meta(description="Strategy grouped: busy time per iteration from which a worker is slow; null: K-means."),
    ] = None
    literal: Annotated[
        bool, Meta(description="As PSP Alg. 1: servers hold an update until its worker is let pass, and apply sums.")
    ] = False

    def __post_init__(self) -> None:
        ArrivalParameters.__post_init__(self)
        if self.threshold_s is not None and not self.threshold_s > 0:
            raise ValueError(f"threshold_s above 0, or null for K-means (found {self.threshold_s})")


SampleParameters = PbspParameters
"""How others are sampled."""


class PsspParameters(PbspParameters, frozen=True, kw_only=True):
    """Parameters of the barrier pssp."""

    staleness: Annotated[int, Meta(ge=0, description="Iterations that a sampled worker may be behind.")] = 4


class AggressiveParameters(Part, frozen=True, kw_only=True):
    """Parameters of the barrier aggressive."""

    ratio: Annotated[
        float | Literal["adaptive"],
        Meta(description="Part of an iteration's samples that must be processed before it is cut; or adaptive."),
    ] = 0.5
    report_s: Annotated[float, Meta(ge=0.001, le=60.0, description="How often workers report progress, at most.")] = 1.0

    def __post_init__(self) -> None:
        if self.ratio != "adaptive" and not 0.0 <= self.ratio <= 1.0:
            raise ValueError(f"ratio between 0 and 1, or adaptive (found {self.ratio})")


class BackupParameters(Part, frozen=True, kw_only=True):
    """Parameters of the barrier backup."""

    backups: Annotated[int, Meta(ge=0, description="b: of all workers, so many need not be waited for.")] = 2


class LbBspGpuParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy lb-bsp-gpu."""

    step: Annotated[int, Meta(ge=1, description="Samples that move per step in the fast approach.")] = 5
    window: Annotated[int, Meta(ge=1, le=1000, description="Iterations that it observes before it moves any.")] = 5
    fine_step: Annotated[int, Meta(ge=1, description="The step of the fine-tune phase.")] = 1
    fine_window: Annotated[int, Meta(ge=1, le=1000, description="The window of the fine-tune phase.")] = 20
    memory_limit: Annotated[
        float, Meta(gt=0.0, le=1.0, description="No worker takes more samples beyond this part of its memory.")
    ] = 0.95
    rearm_gap: Annotated[
        float,
        Meta(
            gt=0.0, le=1.0, description="Gap between fastest and slowest over a window that ends the fine-tune phase."
        ),
    ] = 0.25
    literal: Annotated[bool, Meta(description="As in LB-BSP Alg. 2 to the letter.")] = False


class LbBspFederatedParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy lb-bsp-federated."""

    alpha: Annotated[float, Meta(gt=0.0, le=1.0, description="Weight of the latest round in a client's speed.")] = 0.2


class LbBspLinearParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy lb-bsp-linear."""

    forgetting: Annotated[
        float, Meta(ge=0.5, le=1.0, description="Weight of an iteration against the next in each worker's line.")
    ] = 0.98


class DeadlineParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy deadline."""

    predictor: Annotated[str | dict[str, Any], PREDICTOR] = "ema"
    pieces: Annotated[
        int, Meta(ge=1, le=1024, description="A worker looks at the clock after each of so many pieces of its share.")
    ] = 16
    stretch: Annotated[
        float, Meta(ge=1.0, le=10.0, description="Who is fast goes on to at most so many times its share.")
    ] = 2.0


class PlacementParameters(Part, frozen=True, kw_only=True):
    """What all placements have in common."""

    block_bytes: Annotated[
        int, Meta(ge=4096, le=2**30, description="Largest block, in bytes: the unit of placement.")
    ] = 4 * 1024 * 1024


class RoundRobinParameters(PlacementParameters, frozen=True, kw_only=True):
    """Parameters of the placement round-robin."""

    literal: Annotated[
        bool, Meta(description="As TensorFlow: whole tensors in turn, whatever their size. Else bytes are balanced.")
    ] = False


class MxnetParameters(PlacementParameters, frozen=True, kw_only=True):
    """Parameters of the placement mxnet."""

    large: Annotated[
        int, Meta(ge=1, description="Elements from which on a tensor is split evenly over all servers.")
    ] = 1_000_000


class RebalancingParameters(PlacementParameters, frozen=True, kw_only=True):
    """What placements that follow the servers' speeds have in common."""

    every: Annotated[int, Meta(ge=1, description="Iterations between two looks at the placement.")] = 10
    forgetting: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Weight of an iteration's measurements against the next one's.")
    ] = 0.9


class ProportionalParameters(RebalancingParameters, frozen=True, kw_only=True):
    """Parameters of the placement proportional."""

    variance: Annotated[
        float, Meta(ge=0.0, description="Reassign when (best - worst) / worst of the servers' speeds is above this.")
    ] = 1.0


class ProbingParameters(RebalancingParameters, frozen=True, kw_only=True):
    """What placements have in common that time the servers which they hardly use."""

    margin: Annotated[
        float, Meta(ge=0.0, lt=1.0, description="Reassign where that is predicted to save more than this part.")
    ] = 0.05
    least_gain_s: Annotated[
        float,
        Meta(ge=0.0, description="And only where it is predicted to save more than so many seconds of an exchange."),
    ] = 0.005
    probe_every: Annotated[
        int, Meta(ge=0, description="Iterations between two probes of a server that holds little; 0: never.")
    ] = 10
    probe_bytes: Annotated[int, Meta(ge=1024, description="Largest probe; it is smaller where it would be felt.")] = (
        256 * 1024
    )
    retire_after: Annotated[
        int, Meta(ge=0, description="Iterations after which a server without blocks is given back; 0: never.")
    ] = 0
    minimal_movement: Annotated[bool, Meta(description="Do not move a block if moving it gains nothing.")] = True


class PsldParameters(ProbingParameters, frozen=True, kw_only=True):
    """Parameters of the placement psld."""

    epsilon: Annotated[
        float, Meta(ge=0.0, le=1.0, description="Probability that a block explores any server at all.")
    ] = 0.1
    theta: Annotated[
        float, Meta(ge=0.0, description="theta1 / theta0: weight of a server's part of the bytes against its time.")
    ] = 1.0
    variance: Annotated[
        float, Meta(ge=0.0, description="A server straggles when (best - worst) / worst of speeds is above this.")
    ] = 1.0
    scale_threshold: Annotated[
        float,
        Meta(
            ge=0.0,
            le=1.0,
            description="Request a server when fewer than this fraction of the initial servers are superior.",
        ),
    ] = 0.5
    bounds: Annotated[
        float, Meta(gt=0.0, lt=1.0, description="Confidence of the bounds by which superior servers are identified.")
    ] = 0.9
    tolerance: Annotated[
        float, Meta(ge=1.0, description="A server remains superior within this factor of the best one's time.")
    ] = 1.5
    literal: Annotated[
        bool,
        Meta(
            description="As PSLD Alg. 1-3: no tolerance, blocks explore whatever it costs, no probes, no gain trigger."
        ),
    ] = False


class PsldLptParameters(ProbingParameters, frozen=True, kw_only=True):
    """Parameters of the placement psld-lpt."""


class RotationParameters(Part, frozen=True, kw_only=True):
    """Parameters of the data policy rotation."""

    splits: Annotated[int, Meta(ge=1, le=1000, description="Splits that each worker begins with.")] = 4


class ExchangeParameters(RotationParameters, frozen=True, kw_only=True):
    """Parameters of the data policy exchange."""

    method: Annotated[
        Literal["swap", "migrate"],
        Meta(
            description="The least and the most processed split swap places (A-BSP); or the worker that is ahead takes "
            "splits from the one that is behind, and counts restart (LB-BSP)."
        ),
    ] = "swap"
    gap: Annotated[
        int | None, Meta(description="Act when process counts differ by more; null: 5 to swap, 2 to migrate.")
    ] = None
    literal: Annotated[
        bool,
        Meta(description="As A-BSP Alg. 2: swap regardless of which machine is faster, which can swap back and forth."),
    ] = False

    def __post_init__(self) -> None:
        if self.gap is not None and self.gap < 1:
            raise ValueError(f"gap of at least 1, or null (found {self.gap})")
        if self.literal and self.method == "migrate":
            raise ValueError("method swap with literal: LB-BSP's partition manager has no letter to follow")


class EvidenceParameters(Part, frozen=True, kw_only=True):
    """Parameters of the straggler detector evidence."""

    window: Annotated[int, Meta(ge=4, le=100, description="Iterations that a lasting flag looks back on.")] = 8
    persistent: Annotated[
        float, Meta(gt=0.5, le=1.0, description="Part of them in which the worker must have been raised.")
    ] = 0.875
    slow: Annotated[
        float, Meta(gt=1.0, le=100.0, description="Times the others, or its own past, at which a median is slow.")
    ] = 1.4
    raised: Annotated[
        float, Meta(gt=1.0, le=100.0, description="Times from which on a single iteration counts as raised.")
    ] = 1.25
    spike: Annotated[
        float, Meta(gt=1.0, le=100.0, description="Times from which on an iteration counts for a transient flag.")
    ] = 1.5
    minimum_part: Annotated[
        float, Meta(ge=0.0, le=1.0, description="Least part of the iteration that the time lost must make up.")
    ] = 0.05
    minimum_s: Annotated[float, Meta(ge=0.0, description="Least time lost per iteration, in seconds.")] = 0.003
    fixed_part: Annotated[
        float,
        Meta(ge=0.0, le=1.0, description="Part of a usual compute time that is taken not to depend on the share."),
    ] = 0.05
    guard: Annotated[
        int,
        Meta(ge=0, description="Report when shares made this many iterations slower than even shares would; 0: never."),
    ] = 50

    def __post_init__(self) -> None:
        if self.raised > self.slow:
            raise ValueError(f"raised of at most slow, which is {self.slow}")
