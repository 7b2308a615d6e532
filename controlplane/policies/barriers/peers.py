"""PSP without a centre (``sampling: peers``): each worker samples the others itself and asks them (PSP section 3.2).

The barrier is ``protocol.peers``, within each worker. Here is what is left for the control plane: it lets every worker
take samples for some time in advance, and stops no one.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.barriers import NO_LIMIT, NOTHING, Arrival, Members, Passage, Release, StepScale
from controlplane.policies.catalogue.barriers import PbspParameters, PsspParameters
from controlplane.protocol.drawing import PeerSampling

FREE = Release(watermark=NO_LIMIT, reason="samples in advance: each worker asks others itself when it may continue")


class PeerState(msgspec.Struct, kw_only=True):
    """Nothing to remember: the workers know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPssp:
    """Hands out samples in advance; a worker continues when those that it asked are not too far behind."""

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
        """For how long samples are handed out in advance."""
        return self.parameters.lease_s

    def sampling(self, seed: int) -> PeerSampling:
        """As workers carry it out."""
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
        """It may take more."""
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
