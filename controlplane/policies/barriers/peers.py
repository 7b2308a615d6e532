"""PSP without a central process (``sampling: peers``): each worker samples the others itself (PSP section 3.2).

The barrier is ``protocol.peers``, within each worker. The control plane's part is in this module: it leases samples to
every worker for some time in advance, and holds no worker.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.barriers import NO_LIMIT, NOTHING, Arrival, Members, Passage, Release, StepScale
from controlplane.policies.catalogue.barriers import PbspParameters, PsspParameters
from controlplane.protocol.drawing import PeerSampling

FREE = Release(watermark=NO_LIMIT, reason="samples in advance: each worker itself asks others when it may continue")


class PeerState(msgspec.Struct, kw_only=True):
    """An empty state: the workers have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPssp:
    """Hands out samples in advance; a worker continues when the workers that it sampled are not too far behind."""

    name: ClassVar[str] = "pssp"
    synchronous: ClassVar[bool] = False
    state_type: ClassVar[type[msgspec.Struct]] = PeerState
    holds_updates: ClassVar[bool] = False

    parameters: PbspParameters

    @property
    def step_scale(self) -> StepScale:
        """Of an update."""
        return self.parameters.step_scale

    @property
    def lease_s(self) -> float:
        """How far in advance samples are handed out, in seconds."""
        return self.parameters.lease_s

    def sampling(self, seed: int) -> PeerSampling:
        """The sampling parameters for workers."""
        parameters = self.parameters
        return PeerSampling(
            sample=parameters.sample,
            staleness=parameters.staleness if isinstance(parameters, PsspParameters) else 0,
            fixed=parameters.strategy == "fixed",
            held=parameters.resample == "held",
            recheck=parameters.recheck,
            seed=seed,
        )

    def start(self, members: Members, state: Any | None) -> tuple[PeerState, Passage]:
        """Every worker may take samples."""
        return PeerState(), Passage(releases=dict.fromkeys(sorted(members.done), FREE))

    def arrive(self, arrival: Arrival, state: PeerState) -> tuple[PeerState, Passage]:
        """The worker may take more."""
        return state, Passage(releases={arrival.rank: FREE})

    def recheck_at_ms(self, state: PeerState) -> int | None:
        """Never: no worker waits for the control plane."""
        return None

    def recheck(self, at_ms: int, state: PeerState) -> tuple[PeerState, Passage]:
        """No worker waits for the control plane."""
        return state, NOTHING


class PeerPbsp(PeerPssp):
    """The same with s = 0."""

    __slots__ = ()
    name: ClassVar[str] = "pbsp"
