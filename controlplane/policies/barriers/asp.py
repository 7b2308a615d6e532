"""Asynchronous parallel: no worker waits, and updates may be arbitrarily stale (PSP section 2.2)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.barriers import NO_LIMIT, NOTHING, Arrival, Members, Passage, Release, StepScale
from controlplane.policies.catalogue.barriers import ArrivalParameters

FREE = Release(watermark=NO_LIMIT, reason="no worker waits: each one continues as it finishes")


class AspState(msgspec.Struct, kw_only=True):
    """An empty state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asp:
    """Releases every worker immediately."""

    name: ClassVar[str] = "asp"
    synchronous: ClassVar[bool] = False
    state_type: ClassVar[type[msgspec.Struct]] = AspState
    holds_updates: ClassVar[bool] = False

    parameters: ArrivalParameters

    @property
    def step_scale(self) -> StepScale:
        """Of an update."""
        return self.parameters.step_scale

    def start(self, members: Members, state: Any | None) -> tuple[AspState, Passage]:
        """Every worker may continue."""
        return AspState(), Passage(releases=dict.fromkeys(sorted(members.done), FREE))

    def arrive(self, arrival: Arrival, state: AspState) -> tuple[AspState, Passage]:
        """The worker may continue."""
        return state, Passage(releases={arrival.rank: FREE})

    def recheck_at_ms(self, state: AspState) -> int | None:
        """Never: no worker waits."""
        return None

    def recheck(self, at_ms: int, state: AspState) -> tuple[AspState, Passage]:
        """No worker waits."""
        return state, NOTHING
