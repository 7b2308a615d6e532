"""The API's replies, typed.

A field that a newer control plane adds is ignored; a field that an older one does not send has a default.
"""

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

Policies = dict[str, str]
Flat = dict[str, Any]
"""One of the four policies with its parameters, as a spec has it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all replies."""


class Page(Answer, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    count: int
    next: str | None = None
    results: list[T]


class Waiting(Answer, frozen=True, kw_only=True):
    """Why a job does not start."""

    sentence: str
    status: str
    """``starts``, ``waits``, or ``never``: the machines have too few slots even if all were free."""
    standing: str = ""
    """Deprecated: the same as ``status``."""
    ahead: int = 0


class Job(Answer, frozen=True, kw_only=True):
    """A job: its state, its progress, and the time it lost by waiting."""

    id: int
    name: str
    state: str
    """``submitted``, ``scheduled``, ``starting``, ``running``, ``paused``, ``finishing``, ``succeeded``, ``failed`` or
    ``cancelled``."""
    is_over: bool
    state_since: datetime | None = None
    reason: str = ""
    awaited: str = ""
    waiting: Waiting | None = None
    launch: str = "native"
    priority: int = 0
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    submitted_by: str | None = None
    team: str | None = None
    """Its owner; None: no team, visible to all users."""
    workload: str = ""
    dataset: str = ""
    workers: int = 0
    servers: int = 0
    batch_size: int = 0
    policies: Policies = {}
    incarnation: int = 0
    generation: int = 0
    iteration: int = 0
    samples: int = 0
    loss: float | None = None
    accuracy: float | None = None
    waiting_share: float = 0.0
    coordination_share: float = 0.0
    busy_s: float = 0.0
    waiting_s: float = 0.0
    coordination_s: float = 0.0
    spec: dict[str, Any] = {}
    """Complete if one job is requested, empty in lists."""
    environment: dict[str, str] = {}
    model_bytes: int = 0
    token: str | None = None
    """For an attached job, in the reply to its submission only: the token with which ranks attach."""

    @property
    def succeeded(self) -> bool:
        """Whether it succeeded."""
        return self.state == "succeeded"

    @property
    def lost_share(self) -> float:
        """Waiting and coordination, as a fraction of all workers' time."""
        return self.waiting_share + self.coordination_share


class Check(Answer, frozen=True, kw_only=True):
    """The result of validating a spec."""

    spec: dict[str, Any]
    finding: str


class Policy(Answer, frozen=True, kw_only=True):
    """A job's current policies."""

    batching: Flat
    barrier: Flat
    placement: Flat
    data: Flat
    changes: int = 0
    pending: dict[str, Any] = {}
    etag: str = ""
    """Identifies this state, for ``If-Match``."""


class Process(Answer, frozen=True, kw_only=True):
    """One instance of a worker, rank or server."""

    id: int
    role: str
    index: int
    state: str
    job: int = 0
    instance: str = ""
    agent: str | None = None
    reason: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    share: int | None = None
    iteration: int | None = None
    environment: dict[str, str] = {}


class Decision(Answer, frozen=True, kw_only=True):
    """A command of the engine, with its reason."""

    id: int
    kind: str
    at: datetime
    reason: str = ""
    cause: str = ""
    iteration: int | None = None
    incarnation: int = 0
    sequence: int = 0
    payload: dict[str, Any] = {}


class Flag(Answer, frozen=True, kw_only=True):
    """A finding about a worker, a server or the job."""

    key: str
    kind: str
    sentence: str
    subject: str = ""
    rank: int | None = None
    persistence: str = ""
    opened_at: datetime | None = None
    closed_at: datetime | None = None
    closing_reason: str = ""
    evidence: Any = None


class EngineRequest(Answer, frozen=True, kw_only=True):
    """A user's request to a job's engine, and its outcome."""

    id: int
    action: str
    stage: str
    about: str = ""
    actor: str = ""
    reason: str = ""


class JobToken(Answer, frozen=True, kw_only=True):
    """The token with which ranks attach to one job."""

    job: int
    token: str
    grace_s: float = 0.0


class Outcome(Answer, frozen=True, kw_only=True):
    """One simulated run."""

    scenario: str
    policy: str
    seed: int
    state: str
    why: str = ""
    seconds: float = 0.0
    iterations: int = 0
    updates: int = 0
    samples: int = 0
    iteration_s: float = 0.0
    waiting: float = 0.0
    coordination: float = 0.0
    shares: list[int] = []
    time_to_target_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None


class SimulatedJob(Answer, frozen=True, kw_only=True):
    """The job that holds a simulated policy's series."""

    policy: str
    job: int


class Simulation(Answer, frozen=True, kw_only=True):
    """A scenario under several policies, in virtual time."""

    id: int
    scenario: str
    state: str
    """``queued``, ``running``, ``succeeded``, ``failed`` or ``cancelled``."""
    policies: list[str]
    seed: int = 0
    variation: dict[str, Any] = {}
    reason: str = ""
    done: int = 0
    total: int = 0
    outcomes: list[Outcome] = []
    paper: list[dict[str, Any]] = []
    runs: list[SimulatedJob] = []

    @property
    def is_over(self) -> bool:
        """Whether it is final."""
        return self.state not in {"queued", "running"}


class Scenario(Answer, frozen=True, kw_only=True):
    """A scenario that can be simulated."""

    name: str
    title: str = ""
    story: str = ""
    workers: int = 0
    servers: int = 0
    policies: list[str] = []
    baseline: str = ""


class Agent(Answer, frozen=True, kw_only=True):
    """A machine."""

    id: int
    name: str
    state: str
    host: str = ""
    labels: dict[str, str] = {}
    slots: list[Any] = []
    server_slots: int = 0
    runs_scripts: bool = False
    """Whether it starts scripts of jobs."""
    reserved: list[dict[str, Any]] = []
    """Slots that a job holds: ``role``, ``slot``, ``job``, ``index``."""
    unverified_labels: dict[str, str] = {}
    """Labels set by the machine itself; ``labels`` come from its token."""
    cpu_count: int | None = None
    memory_bytes: int | None = None
    seen_at: datetime | None = None


class Invitation(Answer, frozen=True, kw_only=True):
    """An enrolment token for one machine, or as many as its ``uses``."""

    id: int = 0
    token: str
    command: str
    expires_at: datetime


class ApiToken(Answer, frozen=True, kw_only=True):
    """One of the user's own tokens; ``token`` itself is only in the reply that creates it."""

    id: str
    name: str = ""
    role: str | None = None
    """The highest role that it grants; None: that of its user."""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    used_at: datetime | None = None
    token: str | None = None


class Me(Answer, frozen=True, kw_only=True):
    """The current user."""

    username: str
    role: str | None = None
