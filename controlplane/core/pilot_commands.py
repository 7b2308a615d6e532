"""The base of all commands, and the commands of autopilots and of the guard of convergence."""

from typing import Literal

from controlplane.protocol.base import Count, Positive, Value
from controlplane.protocol.spec import Choice, Synchronization


class Command(Value, frozen=True, kw_only=True):
    """Base of all commands. ``cause`` is the id of the log entry that led to it."""

    cause: str
    reason: str


class PlayAlternatives(Command, frozen=True, kw_only=True, tag="play-alternatives"):
    """Simulate these policies outside of the engine, and append ``AlternativesPlayed`` with what came out."""

    look: Positive
    present: str
    alternatives: dict[str, Synchronization]
    """By name, the present ones included."""
    since: Count
    """The iteration from which on the present policies hold."""


class Judged(Value, frozen=True, kw_only=True):
    """One row of the table that a decision stood on."""

    name: str
    saved: float
    low: float
    high: float
    error: float
    """By which part the prediction may be off: the model's, or what an earlier prediction of it missed by."""
    verdict: str
    """Why it was chosen or not, in a few words."""


class JudgeAlternatives(Command, frozen=True, kw_only=True, tag="judge-alternatives"):
    """An autopilot's decision: the best policies by simulation, with the table of alternatives."""

    look: Count
    iteration: Count
    present: str
    chosen: str
    """Empty: the present ones stay."""
    switches: bool
    """Whether the job switches to them, or it is proposed."""
    choices: dict[str, Choice] = {}
    """The changes for them, by question."""
    rows: list[Judged] = []


class MeasureSwitch(Command, frozen=True, kw_only=True, tag="measure-switch"):
    """The measured effect of a switch, in seconds per sample, and whether the job goes back."""

    iteration: Count
    name: str
    came_from: str
    before_s: float
    after_s: float
    predicted: float
    error: float
    kept: bool
    goes_back: bool
    """Whether it does so by itself."""


class SetAutopilot(Command, frozen=True, kw_only=True, tag="set-autopilot"):
    """From now on the autopilot switches by itself, or only proposes: as requested, or after a person's change."""

    mode: str


class JudgeConvergence(Command, frozen=True, kw_only=True, tag="judge-convergence"):
    """The guard's judgement of a change of policies, with its evidence: training losses at equal samples."""

    iteration: Count
    verdict: Literal["harmful", "harmless", "unknown"]
    batches: Count
    """Global batches since the change."""
    measured: float | None = None
    expected: float | None = None
    limit: float | None = None
    choices: dict[str, Choice] = {}
    """The changes that restore the earlier policies, by question."""
    grown_from: Count = 0
    """Where the change is a larger global batch: the one before it; 0: policies have changed."""
    reverts: bool = False
    """Whether the job goes back by itself."""
