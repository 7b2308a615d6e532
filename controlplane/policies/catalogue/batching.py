"""The batching policies: how many samples each worker takes next."""

from typing import Annotated, Any

from msgspec import Meta

from controlplane.policies.entries import NoParameters, Registration
from controlplane.protocol.energy import Objective
from controlplane.protocol.spec import Part

PREDICTOR = Meta(
    description="The predictor of speeds: its name, or its name with parameters.",
    examples=["ema", {"name": "ema", "alpha": 0.2}],
)


ObjectiveOf = Annotated[
    Objective,
    Meta(
        description="What shares minimize: time, energy, or cost (machine-hours and energy, at the prices of the job's "
        "energy)."
    ),
]
Slack = Annotated[
    float,
    Meta(
        ge=0.0,
        le=10.0,
        description="With objective energy or cost: fraction by which an iteration may take longer than with the "
        "fastest shares; 0 keeps the fastest shares.",
    ),
]
SLACK = 0.1


class LbBspCpuParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy lb-bsp-cpu."""

    predictor: Annotated[str | dict[str, Any], PREDICTOR] = "narx"
    shadows: Annotated[
        list[str | dict[str, Any]],
        Meta(description="Shadow predictors that run on the same observations, for comparison and promotion."),
    ] = []
    score_every: Annotated[
        int, Meta(ge=1, le=10_000, description="Interval in iterations at which all errors are recorded.")
    ] = 50
    literal: Annotated[
        bool,
        Meta(description="Change shares after each iteration, as in Alg. 1, even without a gain."),
    ] = False
    objective: ObjectiveOf = "time"
    slack: Slack = SLACK

    def __post_init__(self) -> None:
        names = [one if isinstance(one, str) else one.get("name") for one in (self.predictor, *self.shadows)]
        if len(set(names)) < len(names):
            raise ValueError(f"each predictor once (found {', '.join(map(str, names))})")


class LbBspGpuParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy lb-bsp-gpu."""

    step: Annotated[int, Meta(ge=1, description="Samples moved per step in the fast-approach phase.")] = 5
    window: Annotated[int, Meta(ge=1, le=1000, description="Iterations observed before the first move.")] = 5
    fine_step: Annotated[int, Meta(ge=1, description="Samples moved per step in the fine-tune phase.")] = 1
    fine_window: Annotated[
        int, Meta(ge=1, le=1000, description="Iterations observed per step in the fine-tune phase.")
    ] = 20
    memory_limit: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Fraction of memory in use above which a worker gets no more samples.")
    ] = 0.95
    rearm_gap: Annotated[
        float,
        Meta(
            gt=0.0,
            le=1.0,
            description="Relative gap between the fastest and slowest worker over a window that ends fine-tuning.",
        ),
    ] = 0.25
    literal: Annotated[bool, Meta(description="Follow LB-BSP Alg. 2 literally.")] = False


class LbBspFederatedParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy lb-bsp-federated."""

    alpha: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Weight of the latest round in the average of a client's speed.")
    ] = 0.2
    objective: ObjectiveOf = "time"
    slack: Slack = SLACK


class LbBspLinearParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy lb-bsp-linear."""

    forgetting: Annotated[
        float, Meta(ge=0.5, le=1.0, description="Forgetting factor per iteration of each worker's line.")
    ] = 0.98
    objective: ObjectiveOf = "time"
    slack: Slack = SLACK


class DeadlineParameters(Part, frozen=True, kw_only=True):
    """Parameters of the batching policy deadline."""

    predictor: Annotated[str | dict[str, Any], PREDICTOR] = "ema"
    pieces: Annotated[
        int, Meta(ge=1, le=1024, description="Number of pieces of a share; a worker checks the clock after each.")
    ] = 16
    stretch: Annotated[
        float, Meta(ge=1.0, le=10.0, description="A fast worker continues up to this multiple of its share.")
    ] = 2.0


def _by_objective(path: str) -> dict[tuple[str, str], str]:
    """Variants of a policy for other objectives: they need each worker's power."""
    return {("objective", objective): path for objective in ("energy", "cost")}


REGISTRATIONS = (
    Registration(
        question="batching",
        name="uniform",
        parameters=NoParameters,
        path="controlplane.policies.batching.uniform:Uniform",
        explanation="The same share for all workers.",
        paper="the baseline",
        compared_as="bsp",
    ),
    Registration(
        question="batching",
        name="lb-bsp-cpu",
        parameters=LbBspCpuParameters,
        path="controlplane.policies.batching.lb_bsp_cpu:LbBspCpu",
        variants=_by_objective("controlplane.policies.batching.lb_bsp_cpu:MeteredLbBspCpu"),
        explanation="Shares proportional to predicted speed, updated each iteration.",
        paper="LB-BSP 3.2, Alg. 1",
        parts={"predictor": "prediction", "shadows": "prediction"},
        compared={"predictor": "ema"},
        compared_as="lb-bsp-ema",
    ),
    Registration(
        question="batching",
        name="lb-bsp-gpu",
        parameters=LbBspGpuParameters,
        path="controlplane.policies.batching.lb_bsp_gpu:LbBspGpu",
        explanation="Moves samples from the slowest to the fastest worker in steps; makes no assumption about how "
        "time depends on the share.",
        paper="LB-BSP 3.3, Alg. 2",
        compared=None,
    ),
    Registration(
        question="batching",
        name="lb-bsp-federated",
        parameters=LbBspFederatedParameters,
        path="controlplane.policies.batching.lb_bsp_federated:LbBspFederated",
        variants=_by_objective("controlplane.policies.batching.lb_bsp_federated:MeteredLbBspFederated"),
        explanation="Clients' batch sizes follow their smoothed speeds; local steps and learning rate are fixed.",
        paper="LB-BSP 3.5",
        compared=None,
    ),
    Registration(
        question="batching",
        name="lb-bsp-linear",
        parameters=LbBspLinearParameters,
        path="controlplane.policies.batching.lb_bsp_linear:LbBspLinear",
        variants=_by_objective("controlplane.policies.batching.lb_bsp_linear:MeteredLbBspLinear"),
        explanation="Fits time as a linear function of the share for each worker, and minimizes the longest time.",
    ),
    Registration(
        question="batching",
        name="deadline",
        parameters=DeadlineParameters,
        path="controlplane.policies.batching.deadline:Deadline",
        explanation="A common time budget per iteration; each worker processes as many samples as fit. For "
        "interruptible work.",
        parts={"predictor": "prediction"},
        compared=None,
    ),
)
