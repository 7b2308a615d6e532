"""The placements: which server holds which block of parameters."""

from typing import Annotated

from msgspec import Meta

from controlplane.policies.entries import Registration
from controlplane.protocol.spec import Part


class PlacementParameters(Part, frozen=True, kw_only=True):
    """Parameters of all placements."""

    block_bytes: Annotated[
        int, Meta(ge=4096, le=2**30, description="Largest block, in bytes: the unit of placement.")
    ] = 4 * 1024 * 1024


class RoundRobinParameters(PlacementParameters, frozen=True, kw_only=True):
    """Parameters of the placement round-robin."""

    literal: Annotated[
        bool,
        Meta(description="As TensorFlow: whole tensors in turn, regardless of size. Otherwise bytes are balanced."),
    ] = False


class MxnetParameters(PlacementParameters, frozen=True, kw_only=True):
    """Parameters of the placement mxnet."""

    large: Annotated[
        int, Meta(ge=1, description="Number of elements above which a tensor is split evenly over all servers.")
    ] = 1_000_000


class RebalancingParameters(PlacementParameters, frozen=True, kw_only=True):
    """Parameters of placements that follow the servers' speeds."""

    every: Annotated[int, Meta(ge=1, description="Interval in iterations between checks of the placement.")] = 10
    forgetting: Annotated[
        float, Meta(gt=0.0, le=1.0, description="Forgetting factor per iteration of the measurements.")
    ] = 0.9


class ProportionalParameters(RebalancingParameters, frozen=True, kw_only=True):
    """Parameters of the placement proportional."""

    variance: Annotated[
        float, Meta(ge=0.0, description="Reassign when (best - worst) / worst of the servers' speeds is above this.")
    ] = 1.0


class ProbingParameters(RebalancingParameters, frozen=True, kw_only=True):
    """Common parameters of placements that probe servers with few blocks."""

    margin: Annotated[
        float,
        Meta(
            ge=0.0,
            lt=1.0,
            description="Reassign if it is predicted to save more than this fraction of the exchange time.",
        ),
    ] = 0.05
    least_gain_s: Annotated[
        float,
        Meta(ge=0.0, description="Reassign only if it is predicted to save more than this time per exchange."),
    ] = 0.005
    probe_every: Annotated[
        int, Meta(ge=0, description="Interval in iterations between probes of a server with few blocks; 0: never.")
    ] = 10
    probe_bytes: Annotated[
        int, Meta(ge=1024, description="Largest probe. Probes are smaller if they would slow training.")
    ] = 256 * 1024
    retire_after: Annotated[
        int, Meta(ge=0, description="Iterations after which a server without blocks is removed; 0: never.")
    ] = 0
    minimal_movement: Annotated[bool, Meta(description="Do not move a block without a gain.")] = True


class PsldParameters(ProbingParameters, frozen=True, kw_only=True):
    """Parameters of the placement psld."""

    epsilon: Annotated[
        float, Meta(ge=0.0, le=1.0, description="Probability that a block explores a random server.")
    ] = 0.1
    theta: Annotated[
        float, Meta(ge=0.0, description="theta1 / theta0: weight of a server's share of bytes relative to its time.")
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
        Meta(description="As PSLD Alg. 1-3: no tolerance, unlimited exploration, no probes, no gain trigger."),
    ] = False


class PsldLptParameters(ProbingParameters, frozen=True, kw_only=True):
    """Parameters of the placement psld-lpt."""


REGISTRATIONS = (
    Registration(
        question="placement",
        name="round-robin",
        parameters=RoundRobinParameters,
        path="controlplane.policies.placement.round_robin:RoundRobin",
        explanation="Blocks are assigned in turn, to the server with the fewest bytes first; literal: whole tensors "
        "in turn.",
        paper="PSLD 2.2, Table 1",
    ),
    Registration(
        question="placement",
        name="mxnet",
        parameters=MxnetParameters,
        path="controlplane.policies.placement.mxnet:Mxnet",
        explanation="Large tensors are split evenly over all servers; others are assigned by a hash of their position.",
        paper="PSLD 2.2, Table 2",
    ),
    Registration(
        question="placement",
        name="proportional",
        parameters=ProportionalParameters,
        path="controlplane.policies.placement.proportional:Proportional",
        explanation="Bytes proportional to each server's measured speed, when a server straggles.",
        paper="PSLD 6.1, the strawman",
    ),
    Registration(
        question="placement",
        name="psld",
        parameters=PsldParameters,
        path="controlplane.policies.placement.psld:Psld",
        explanation="Blocks are placed on a superior set of servers, and a few explore others; servers are added and "
        "removed if it helps.",
        paper="PSLD 4, Alg. 1-3",
    ),
    Registration(
        question="placement",
        name="psld-lpt",
        parameters=PsldLptParameters,
        path="controlplane.policies.placement.psld_lpt:PsldLpt",
        explanation="Assigns the largest block first, to the server predicted to finish it first, if the gain is "
        "large enough.",
    ),
)
