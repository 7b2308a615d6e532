"""Every Redis key, channel and time limit of the live driver."""

from typing import Final

LIVE_JOBS: Final = "jobs:live"
"""Set of the jobs that have a log in Redis."""

AGENTS: Final = "agents:presence"
"""Hash from agent to its last heartbeat and load."""

AGENT_CONNECTIONS: Final = "agents:connections"
"""Hash from agent to the connection that it last opened."""

GATEWAYS: Final = "gateways"
"""Hash from a gateway's host to its last heartbeat: while a gateway is missing, its processes' heartbeats are missing
too."""

GATEWAY_SOCKETS: Final = "gateways:sockets"
"""Hash from a gateway's host to how many pages and how many machines are connected to it."""

SYSTEM_SAMPLES: Final = "system:samples"
"""List: health samples of the control plane, every 10 s for an hour."""

FORECASTS_WANTED: Final = "forecasts:wanted"
"""Sorted set: jobs with a page that shows their alternatives, by time."""

PLAYS_REQUESTED: Final = "autopilot:asked"
"""Hash from job to the simulation that its autopilot requested."""

PLAYS_REQUESTED_AT: Final = "autopilot:asked-since"
"""Sorted set: the same jobs by the time of their request."""

FORECAST_LEASE: Final = "forecasts:lease"

ALERTS_LEASE: Final = "alerts:lease"
DELIVERY_LEASE: Final = "alerts:delivery-lease"
AUDIT_LEASE: Final = "audit:lease"

MISSING_AGENTS: Final = "agents:missing"
"""Hash from agent to when the reaper first missed it."""

REAPER_BEAT: Final = "reaper:beat"
"""String: the time of the reaper's last check."""

IDENTITY: Final = "identity"
"""String: the identity of this Redis, which the database also stores."""

TAKING_OVER: Final = "identity:taking-over"
"""String: a process is claiming this Redis for its database."""

RECOVERED: Final = "recovered"
"""String: the run of this Redis in which the log of every live job is complete."""

PAGES: Final = "pages"
"""Channel: data that a page may show has changed."""

PAGES_SEQUENCE: Final = "pages:seq"
INGEST_LEASE: Final = "ingest:lease"
TURNS_FAILED: Final = "turns:failed"
"""Hash from loop and job to the time and reason of the last failure of that job's step."""

INGEST_WHO: Final = "ingest:who"
"""``host:pid`` of the process that copies, or copied last."""

LINES_JOBS: Final = "lines:jobs"
"""Set of the jobs that have a stream of log lines."""

INGEST_TROUBLE: Final = "ingest:trouble"
"""Hash: since when writes to the database fail, and why."""

QUEUED_MS: Final = 5_000
"""After this long a queued job counts as idle again: its task was lost."""

FETCHED_MS: Final = 1_000
"""If Celery's queue is empty, the task of a job that has been queued for this long was lost."""

HELD_MS: Final = 5_000
"""After this long without renewal a holder counts as dead."""

RENEW_S: Final = 1.0
LINGER_S: Final = 2.0
"""How long a holder waits for further entries while no other job is queued."""

LONG_LOG: Final = 100_000
"""Entries of one job's log in Redis above which its processes are slowed down, because ingest is behind."""

FULL_LOG: Final = 2 * LONG_LOG
"""About the maximum number of entries of a log (some 50 MB), however long the database is unavailable."""

SLOTS_SENT_MS: Final = 10_000
"""How long a job has to accept its slots before they are offered again."""

TOMBSTONE_S: Final = 86_400
"""How long late events of a finished job are refused with that reason rather than as unknown."""


AGENT_REMOVED: Final = "removed"
"""On the channel ``agent_moved``: the machine was removed. No connection has this name."""


def process(name: str) -> str:
    """String: host and pid of a decision process; it expires without heartbeats."""
    return f"process:{name}"


def writer(name: str) -> str:
    """As ``process``, for a process that writes history."""
    return f"writer:{name}"


def events(job: int) -> str:
    """Stream: the log."""
    return f"job:{job}:events"


def commands(job: int) -> str:
    """Stream: the engine's commands."""
    return f"job:{job}:commands"


def state(job: int) -> str:
    """String: absent is idle, else ``queued``, ``resting`` or ``held:<token>:<process>:<nonce>:<run id of Redis>``.

    All of them expire.
    """
    return f"job:{job}:state"


def token(job: int) -> str:
    """Counter of fencing tokens."""
    return f"job:{job}:token"


def engine(job: int) -> str:
    """Hash: cursor, deadline, sequence, over, and the last snapshot with its own cursors."""
    return f"job:{job}:engine"


def presence(job: int) -> str:
    """Hash from process to its last heartbeat and load."""
    return f"job:{job}:presence"


def connections(job: int) -> str:
    """Hash from process to the connection that it last opened."""
    return f"job:{job}:connections"


def lines(job: int) -> str:
    """Stream, bounded: log lines of the job's processes."""
    return f"job:{job}:lines"


def lines_count(job: int) -> str:
    """Counter of all log lines of the job's processes."""
    return f"job:{job}:lines-count"


def durable(job: int) -> str:
    """Hash from process instance to the number up to which its messages are in the database."""
    return f"job:{job}:durable"


def durable_moved(job: int) -> str:
    """Channel: durable numbers that have risen."""
    return f"job:{job}:durable-moved"


def slots_sent(job: int) -> str:
    """String: slots were offered to the job recently."""
    return f"job:{job}:slots-told"


def slot_sent(job: int, role: str, index: int, instance: str) -> str:
    """String: a slot for the next instance of this process was offered recently."""
    return f"job:{job}:slot-told:{role}:{index}:{instance}"


def frames(job: int) -> str:
    """Channel: frames for the job's sockets."""
    return f"job:{job}:frames"


def agent_processes(agent: int) -> str:
    """Hash from ``job:role:index`` to the process that should run."""
    return f"agent:{agent}:processes"


def agent_sequence(agent: int) -> str:
    """Counter of the orders that the agent was sent."""
    return f"agent:{agent}:sequence"


def agent_started(agent: int) -> str:
    """Set of the processes that the agent reported as started."""
    return f"agent:{agent}:started"


def agent_moved(agent: int) -> str:
    """Channel: the agent's processes changed, another connection is its current one, or it was removed."""
    return f"agent:{agent}:moved"


def agent_rotation(agent: int) -> str:
    """Channel: the agent should get a new credential."""
    return f"agent:{agent}:rotation"


def agent_test(agent: int) -> str:
    """Channel: the agent takes part in a test of a machine."""
    return f"agent:{agent}:test"
