"""The policies that change a job's other policies: an autopilot and a guard of convergence, as the engine sees them.

What each is shown and what it answers. They are in ``policies/autopilot`` and ``policies/guard``.
"""

from typing import Any, ClassVar, Final, Literal, Protocol

import msgspec

from controlplane.core.pilot_commands import Judged
from controlplane.protocol.autopilot import Mode
from controlplane.protocol.base import Finite, Name, Value
from controlplane.protocol.spec import JobSpec, Synchronization

GUARD: Final = "guard"
"""Who asks for the changes of a guard."""


class Mark(Value, frozen=True, kw_only=True):
    """How far a job was at some time, pauses not counted."""

    batches: int
    """Global batches' worth of samples that were reported so far."""
    samples: int
    at_s: float

    def pace_to(self, later: "Mark") -> float | None:
        """Seconds per sample from here to ``later``; None: nothing was processed."""
        samples = later.samples - self.samples
        return (later.at_s - self.at_s) / samples if samples > 0 and later.at_s > self.at_s else None


class PlayedAlternative(Value, frozen=True, kw_only=True):
    """What the simulation of other policies gave. Parts of the present policies' time per sample, simulated alike."""

    name: Name
    saved: Finite
    low: Finite
    high: Finite
    """Mean, least and most over the seeds."""
    unfinished: bool = False
    """Whether any of its runs did not come to its end."""


class Ask(Value, frozen=True, kw_only=True):
    """Simulate the alternatives on what was seen since the present policies took effect."""

    look: int
    reason: str


class Verdict(Value, frozen=True, kw_only=True):
    """What follows from a simulation."""

    chosen: str
    """The alternative that is better; empty: the present policies stay."""
    switches: bool
    """Whether to switch to it, or only to propose it."""
    rows: list[Judged]
    reason: str


class Measured(Value, frozen=True, kw_only=True):
    """What came of a switch, in seconds per sample."""

    name: str
    came_from: str
    before_s: float
    after_s: float
    predicted: float
    error: float
    kept: bool
    reason: str

    @property
    def gain(self) -> float:
        """The part of the time that it saved, as measured."""
        return 1.0 - self.after_s / self.before_s


class Pilot(Protocol):
    """Decides when to simulate alternatives, which one to switch to, and whether the switch was right."""

    name: ClassVar[str]
    state_type: ClassVar[type[msgspec.Struct]]

    def start(self) -> Any:
        """The state before any observation."""

    def alternatives(self, spec: JobSpec) -> dict[str, Synchronization]:
        """Policies that this job may have, by name; those that it was submitted with are among them."""

    def observe(self, mark: Mark, workers: int, state: Any) -> tuple[Any, Ask | Measured | None]:
        """The job has processed another global batch, by so many workers."""

    def decide(
        self, look: int, present: str, played: list[PlayedAlternative], error: float, mark: Mark, state: Any
    ) -> tuple[Any, Verdict]:
        """The answer to an ``Ask``.

        Raises:
            ValueError: if it is not the answer that is waited for.
        """

    def switched(self, came_from: str, to: str, mark: Mark, state: Any, *, by_itself: bool) -> Any:
        """Other policies take effect: the autopilot's own choice, or someone's."""

    def switches(self, state: Any) -> bool:
        """Whether it changes policies by itself."""

    def impossible(self, name: str, mark: Mark, state: Any) -> Any:
        """The job cannot have this alternative now, or it was found to do harm: it is not tried again soon."""

    def restarted(self, mark: Mark, state: Any) -> Any:
        """An answer came when the job could not act on it: measure anew, and ask again."""

    def told(self, mode: Mode, mark: Mark, state: Any) -> Any:
        """Someone set its mode."""


class Judgement(Value, frozen=True, kw_only=True):
    """What became of the training loss after a change of policies or a larger global batch, at equal samples."""

    verdict: Literal["harmful", "harmless", "unknown"]
    batches: int
    """Global batches since the change."""
    measured: float | None = None
    """Mean training loss over the last of them; None: not a number, or nothing was measured."""
    expected: float | None = None
    """What the policies before the change would have given, at the same number of samples."""
    limit: float | None = None
    """The loss above which the change counts as harmful."""
    reason: str


class ConvergenceGuard(Protocol):
    """Judges from the training loss at equal samples whether a change harms convergence: of policies, or a larger
    global batch, which is a relaxation too.
    """

    state_type: ClassVar[type[msgspec.Struct]]

    def start(self) -> Any:
        """The state before any observation."""

    def is_ready(self, state: Any) -> bool:
        """Whether a change that took effect now could be judged."""

    def is_blind(self, state: Any) -> bool:
        """Whether no change can be judged, however many batches follow: the losses cannot be compared."""

    def relaxed(self, state: Any) -> tuple[Any, Judgement | None]:
        """Relaxed policies take effect; a judgement if there is too little to compare them with."""

    def restored(self, state: Any) -> Any:
        """Stricter policies take effect, or samples are repeated: nothing before counts any more."""

    def observe(self, samples: int, loss: float, state: Any) -> tuple[Any, Judgement | None]:
        """The mean loss over one more global batch, after so many samples in all; NaN or infinite: it diverged."""
