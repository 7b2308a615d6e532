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
"""Sorted set: the jobs whose alternatives a page shows, by time."""

PLAYS_ASKED: Final = "autopilot:asked"
"""Hash: by job, the simulation that its autopilot waits for."""

PLAYS_SINCE: Final = "autopilot:asked-since"
"""Sorted set: the same jobs by the time since when they wait."""

FORECAST_LEASE: Final = "forecasts:lease"

ALERTS_LEASE: Final = "alerts:lease"
DELIVERY_LEASE: Final = "alerts:delivery-lease"
AUDIT_LEASE: Final = "audit:lease"

MISSING_AGENTS: Final = "agents:missing"
"""Hash from agent to when the reaper first missed it."""

REAPER_BEAT: Final = "reaper:beat"
"""String: when the reaper last looked."""

IDENTITY: Final = "identity"
"""String: which Redis this is, as the database knows it."""

TAKING_OVER: Final = "identity:taking-over"
"""String: a process is about to give this Redis its identity."""

RECOVERED: Final = "recovered"
"""String: the run of this Redis in which the log of every live job is complete."""

PAGES: Final = "pages"
"""Channel: something that a page may show has moved."""

PAGES_SEQUENCE: Final = "pages:seq"
INGEST_LEASE: Final = "ingest:lease"
TURNS_FAILED: Final = "turns:failed"
"""By loop and job: when a job's turn in a loop over jobs failed last, and why."""

INGEST_WHO: Final = "ingest:who"
"""``host:pid`` of the process that copies, or did last."""

LINES_JOBS: Final = "lines:jobs"
"""Set of the jobs that have a stream of log lines."""

INGEST_TROUBLE: Final = "ingest:trouble"
"""Hash: since when nothing can be written to the database, and why."""

QUEUED_MS: Final = 5_000
"""After this long a queued job counts as idle again: its task was lost."""

FETCHED_MS: Final = 1_000
"""Where no task waits in its queue, a job that has been queued for so long had a task that was lost."""

HELD_MS: Final = 5_000
"""After this long without renewal a holder counts as dead."""

RENEW_S: Final = 1.0
LINGER_S: Final = 2.0
"""How long a holder waits for more while no other job is queued."""

LONG_LOG: Final = 100_000
"""Entries of one job's log in Redis from which on its processes are slowed down: ingest is that far behind."""

FULL_LOG: Final = 2 * LONG_LOG
"""About as many as a log ever has (some 50 MB), however long the database is away."""

SLOTS_SENT_MS: Final = 10_000
"""How long a job has to accept its slots before they are offered again."""

TOMBSTONE_S: Final = 86_400
"""How long a finished job's late events are refused by name rather than as unknown."""


def process(name: str) -> str:
    """String: where a process that decides runs; it expires without heartbeats."""
    return f"process:{name}"


def writer(name: str) -> str:
    """As ``process``, of one that writes history."""
    return f"writer:{name}"


def events(job: int) -> str:
    """Stream: the log."""
    return f"job:{job}:events"


def commands(job: int) -> str:
    """Stream: the engine's commands."""
    return f"job:{job}:commands"


def state(job: int) -> str:
    """String: absent is idle, else ``queued``, ``resting`` or ``held:<token>:<process>:<nonce>:<life of Redis>``.

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
    """Counter of the log lines that the job's processes ever had."""
    return f"job:{job}:lines-count"


def durable(job: int) -> str:
    """Hash from process instance to the number up to which its messages are in the database."""
    return f"job:{job}:durable"


def durable_moved(job: int) -> str:
    """Channel: durable numbers that have risen."""
    return f"job:{job}:durable-moved"


def slots_sent(job: int) -> str:
    """String: slots were offered to the job a moment ago."""
    return f"job:{job}:slots-told"


def slot_sent(job: int, role: str, index: int, instance: str) -> str:
    """String: a slot for the next instance of this process was offered a moment ago."""
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
    """Channel: the agent's processes changed."""
    return f"agent:{agent}:moved"


def agent_rotation(agent: int) -> str:
    """Channel: the agent should get a new credential."""
    return f"agent:{agent}:rotation"


def agent_test(agent: int) -> str:
    """Channel: the agent takes part in a test of a machine."""
    return f"agent:{agent}:test"
