"""The predictors: how fast each worker will be in the coming iteration."""

from typing import Annotated

from msgspec import Meta

from controlplane.policies.entries import NoParameters, Registration
from controlplane.protocol.spec import Part


class EmaParameters(Part, frozen=True, kw_only=True):
    """Parameters of the predictor ema."""

    alpha: Annotated[float, Meta(gt=0.0, le=1.0, description="Weight of the latest observation.")] = 0.2


class ArimaParameters(Part, frozen=True, kw_only=True):
    """Parameters of the predictor arima."""

    p: Annotated[int, Meta(ge=0, le=10, description="Order of the autoregressive part.")] = 2
    d: Annotated[int, Meta(ge=0, le=3, description="Order of differencing.")] = 2
    q: Annotated[int, Meta(ge=0, le=10, description="Order of the moving average part.")] = 1


LEAST_TARGETS = 3
"""A recurrent predictor is trained on at least this many iterations more than its look-back."""


class RecurrentParameters(Part, frozen=True, kw_only=True):
    """Parameters of the predictors narx, rnn and lstm."""

    look_back: Annotated[int, Meta(ge=1, le=20, description="Number of past iterations used as input.")] = 2
    hidden: Annotated[int, Meta(ge=1, le=64, description="Units of the hidden layer.")] = 8
    samples: Annotated[
        int,
        Meta(ge=20, le=10_000, description="Iterations before the first training, and window size of each training."),
    ] = 500
    retrain_every: Annotated[int, Meta(ge=0, description="Retraining interval in iterations; 0: trained once.")] = 100
    alpha: Annotated[
        float,
        Meta(gt=0.0, le=1.0, description="Weight of the latest observation in the EMA that predicts during warm-up."),
    ] = 0.2

    def __post_init__(self) -> None:
        # The look-back and the coming iteration's readings, one training target and one held-out target.
        if self.samples < self.look_back + LEAST_TARGETS:
            raise ValueError(
                f"samples of at least {self.look_back + LEAST_TARGETS}, required by a look_back of {self.look_back}"
                f" (found {self.samples})"
            )


class RegressionParameters(Part, frozen=True, kw_only=True):
    """Parameters of the predictor regression."""

    alpha: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Weight of the latest observation in each worker's level.")
    ] = 0.2
    forgetting: Annotated[
        float, Meta(ge=0.9, le=1.0, description="Forgetting factor per iteration of the common slopes.")
    ] = 0.998


REGISTRATIONS = (
    Registration(
        question="prediction",
        name="ema",
        parameters=EmaParameters,
        path="controlplane.policies.prediction.ema:Ema",
        explanation="Exponential moving average: robust to perturbations, slow to follow a lasting change.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="memoryless",
        parameters=NoParameters,
        path="controlplane.policies.prediction.memoryless:Memoryless",
        explanation="The speed of the last iteration.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="arima",
        parameters=ArimaParameters,
        path="controlplane.policies.prediction.arima:Arima",
        explanation="Extrapolates each worker's past speeds (p, d, q), fitted by recursive maximum likelihood.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="rnn",
        parameters=RecurrentParameters,
        path="controlplane.policies.prediction.recurrent:Rnn",
        explanation="Plain recurrent network over past speeds, trained online.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="lstm",
        parameters=RecurrentParameters,
        path="controlplane.policies.prediction.recurrent:Lstm",
        explanation="Long short-term memory network over past speeds, trained online.",
        paper="LB-BSP 3.2.2, Table 3",
    ),
    Registration(
        question="prediction",
        name="narx",
        parameters=RecurrentParameters,
        path="controlplane.policies.prediction.recurrent:Narx",
        explanation="Recurrent network over past speeds, and past and current CPU and memory use, trained online.",
        paper="LB-BSP 3.2.2, Eq. 4",
    ),
    Registration(
        question="prediction",
        name="regression",
        parameters=RegressionParameters,
        path="controlplane.policies.prediction.regression:Regression",
        explanation="Log-linear in CPU and memory use, learned from all workers, with a level for each worker. No "
        "warm-up.",
    ),
)
