"""The barriers: when a worker may start its next iteration."""

from typing import Annotated, Literal

from msgspec import Meta

from controlplane.policies.entries import NoParameters, Registration
from controlplane.protocol.spec import Part


class ArrivalParameters(Part, frozen=True, kw_only=True):
    """Parameters of the barrier asp, and the common ones of all asynchronous barriers."""

    step_scale: Annotated[
        Literal["auto", "mean", "average", "paper"] | float | None,
        Meta(
            description="Weight of an update that is applied on arrival. mean: 1/n of a step for n workers; average: n "
            "updates are summed and make one step; paper: a whole step (PSP); a number: that fraction of a step; auto "
            "or null: mean for plain SGD, average for every other optimizer, which matches bsp at equal samples."
        ),
    ] = None

    def __post_init__(self) -> None:
        if isinstance(self.step_scale, int | float) and not 0.0 < self.step_scale <= 1.0:
            raise ValueError(
                f"step_scale of auto, mean, average, paper, or above 0 and at most 1 (found {self.step_scale})"
            )


class SspParameters(ArrivalParameters, frozen=True, kw_only=True):
    """Parameters of the barrier ssp."""

    staleness: Annotated[
        int, Meta(ge=0, description="Maximum number of iterations by which a worker may be ahead of the slowest.")
    ] = 5


class PbspParameters(ArrivalParameters, frozen=True, kw_only=True):
    """Parameters of the barrier pbsp, and those that it shares with pssp."""

    sample: Annotated[
        int,
        Meta(ge=0, description="Number of sampled workers. 0 is the same as asp, all others the same as bsp or ssp."),
    ] = 4
    strategy: Annotated[
        Literal["dynamic", "fixed", "grouped"],
        Meta(
            description="dynamic: a new sample each iteration; fixed: one sample for the whole job; grouped: equal "
            "numbers of slow and fast workers, each iteration."
        ),
    ] = "dynamic"
    resample: Annotated[
        Literal["redrawn", "held"],
        Meta(description="Whether a waiting worker draws new samples, or waits for all workers in its first sample."),
    ] = "redrawn"
    recheck: Annotated[
        float,
        Meta(
            ge=0.0,
            le=100.0,
            description="With redrawn samples: time between draws, in iteration times of the waiting worker. It also "
            "draws when a worker that it waits for reports; 0: only then.",
        ),
    ] = 0.25
    threshold_s: Annotated[
        float | None,
        Meta(description="Strategy grouped: busy time per iteration above which a worker is slow; null: K-means."),
    ] = None
    literal: Annotated[
        bool,
        Meta(description="As PSP Alg. 1: servers hold updates until their worker passes the barrier, and apply sums."),
    ] = False
    sampling: Annotated[
        Literal["central", "peers"],
        Meta(
            description="central: the control plane samples, from reports; peers: each worker asks the workers in its "
            "sample directly and continues without the control plane."
        ),
    ] = "central"
    lease_s: Annotated[
        float,
        Meta(
            ge=1.0,
            le=86_400.0,
            description="With sampling peers: how many seconds of training samples are handed out in advance; a "
            "worker continues without the control plane for at least half of that time.",
        ),
    ] = 60.0

    def __post_init__(self) -> None:
        ArrivalParameters.__post_init__(self)
        if self.threshold_s is not None and not self.threshold_s > 0:
            raise ValueError(f"threshold_s above 0, or null for K-means (found {self.threshold_s})")
        if self.sampling == "peers":
            self._check_peers()

    def _check_peers(self) -> None:
        """Refuse options that only the control plane supports, since it knows all workers and receives each report."""
        if self.strategy == "grouped":
            raise ValueError(
                "strategy dynamic or fixed with sampling peers, or sampling central: the groups are made of the times "
                "of all workers, which only the control plane knows (found grouped)"
            )
        if self.literal:
            raise ValueError(
                "literal false with sampling peers, or sampling central: servers that hold updates learn from the "
                "control plane which worker has passed (found true)"
            )
        if not self.recheck:
            raise ValueError(
                "recheck above 0 with sampling peers, or sampling central: a waiting worker does not see reports, it "
                "asks again (found 0)"
            )


SampleParameters = PbspParameters
"""Parameters of barriers that sample workers."""


class PsspParameters(PbspParameters, frozen=True, kw_only=True):
    """Parameters of the barrier pssp."""

    staleness: Annotated[
        int, Meta(ge=0, description="Maximum number of iterations by which a sampled worker may be behind.")
    ] = 4


class AggressiveParameters(Part, frozen=True, kw_only=True):
    """Parameters of the barrier aggressive."""

    ratio: Annotated[
        float | Literal["adaptive"],
        Meta(
            description="Fraction of an iteration's samples that must be processed before it is cut short; or adaptive."
        ),
    ] = 0.5
    report_s: Annotated[
        float, Meta(ge=0.001, le=60.0, description="Minimum interval between progress reports of a worker, in seconds.")
    ] = 1.0

    def __post_init__(self) -> None:
        if self.ratio != "adaptive" and not 0.0 <= self.ratio <= 1.0:
            raise ValueError(f"ratio between 0 and 1, or adaptive (found {self.ratio})")


class BackupParameters(Part, frozen=True, kw_only=True):
    """Parameters of the barrier backup."""

    backups: Annotated[int, Meta(ge=0, description="b: number of workers that an iteration does not wait for.")] = 2


REGISTRATIONS = (
    Registration(
        question="barrier",
        name="bsp",
        parameters=NoParameters,
        path="controlplane.policies.barriers.bsp:Bsp",
        explanation="No worker starts an iteration before all have finished the one before.",
        paper="the baseline",
    ),
    Registration(
        question="barrier",
        name="asp",
        parameters=ArrivalParameters,
        path="controlplane.policies.barriers.asp:Asp",
        explanation="No worker waits. Updates are applied as they arrive; see step_scale.",
        paper="the baseline; PSP 2.2",
    ),
    Registration(
        question="barrier",
        name="ssp",
        parameters=SspParameters,
        path="controlplane.policies.barriers.ssp:Ssp",
        explanation="A worker may be a few iterations ahead of the slowest.",
        paper="the baseline; PSP 2.2",
    ),
    Registration(
        question="barrier",
        name="pbsp",
        parameters=PbspParameters,
        path="controlplane.policies.barriers.psp:Pbsp",
        variants={("sampling", "peers"): "controlplane.policies.barriers.peers:PeerPbsp"},
        explanation="A worker continues when no worker in a random sample of the others is behind it.",
        paper="PSP 3, Alg. 1",
    ),
    Registration(
        question="barrier",
        name="pssp",
        parameters=PsspParameters,
        path="controlplane.policies.barriers.psp:Pssp",
        variants={("sampling", "peers"): "controlplane.policies.barriers.peers:PeerPssp"},
        explanation="A worker continues when no worker in a random sample of the others is more than a few "
        "iterations behind it.",
        paper="PSP 3, Alg. 1",
        compared=None,
    ),
    Registration(
        question="barrier",
        name="aggressive",
        parameters=AggressiveParameters,
        path="controlplane.policies.barriers.aggressive:Aggressive",
        explanation="When the fastest worker has finished and enough samples are processed, all workers stop and "
        "synchronize.",
        paper="A-BSP 3.2, Alg. 1",
        compared_as="a-bsp",
    ),
    Registration(
        question="barrier",
        name="backup",
        parameters=BackupParameters,
        path="controlplane.policies.barriers.backup:Backup",
        explanation="The first n of n + b workers complete an iteration; the updates of the others are dropped.",
        paper="redundant execution",
    ),
)
