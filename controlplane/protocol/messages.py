"""What workers, servers and agents say to the control plane.

Every message but a heartbeat carries a ``number``, counted from 1 within one process instance; the sender keeps it
until the durable number in its orders has passed it, and sends it again after a reconnect. Numbers rise by one.
"""

from controlplane.protocol.base import Count, Fraction, Name, Positive, Seconds, Value
from controlplane.protocol.orders import Role
from controlplane.protocol.spec import Emulation


class WorkerHello(Value, frozen=True, kw_only=True, tag="worker-hello"):
    """The first message of a worker process and of each of its reconnections: answered with current orders."""

    number: Positive
    parameter_count: Positive
    sample_count: Positive
    """Samples of the training split that the worker can draw from."""


class IterationReport(Value, frozen=True, kw_only=True, tag="report", gc=False):
    """What one worker measured over one iteration.

    ``compute_s + push_s + pull_s + waiting_s + coordination_s`` is the iteration's length: from the
    acknowledgement of the previous iteration's last push to that of this one's. ``pull_s`` excludes the time for
    which a server held the reply; that is waiting.
    """

    number: Positive
    generation: Count
    iteration: Count
    samples: Count
    position: Count
    """Where in the job's permutations the samples began."""
    loss: float
    """Mean over the samples."""
    compute_s: Seconds
    push_s: Seconds
    pull_s: Seconds
    waiting_s: Seconds
    coordination_s: Seconds
    cpu: Fraction = 0.0
    memory: Fraction = 0.0
    """CPU and memory use of the machine when the report is sent."""
    overran: bool = False
    """An emulated machine that could not keep its stated speed in this iteration."""

    @property
    def iteration_s(self) -> float:
        """The whole iteration."""
        return self.compute_s + self.push_s + self.pull_s + self.waiting_s + self.coordination_s

    @property
    def busy_s(self) -> float:
        """Compute and unoverlapped communication: the batch processing time t of LB-BSP, section 4."""
        return self.compute_s + self.push_s + self.pull_s


class Evaluation(Value, frozen=True, kw_only=True, tag="evaluation"):
    """The score of one version of the parameters (after ``iteration`` updates) on the held-out split."""

    number: Positive
    iteration: Count
    loss: float
    accuracy: Fraction | None
    samples: Positive
    seconds: Seconds


class WorkerFinished(Value, frozen=True, kw_only=True, tag="worker-finished"):
    """The worker reached ``stop_at``; ``model_saved`` if it uploaded the final parameters."""

    number: Positive
    iteration: Count
    model_saved: bool = False


class ProgressReport(Value, frozen=True, kw_only=True, tag="progress"):
    """How many samples of an iteration are processed so far; sent each ``Orders.progress_s`` while computing.

    With ``samples_done`` equal to the share it is the synchronisation request of A-BSP Alg. 1.
    """

    number: Positive
    generation: Count
    iteration: Count
    samples_done: Count


class Computed(Value, frozen=True, kw_only=True, tag="computed"):
    """An update is ready to be pushed; said before the push where ``Orders.announce`` asks for it."""

    number: Positive
    generation: Count
    iteration: Count
    samples: Count


class Held(Value, frozen=True, kw_only=True, tag="held"):
    """The worker stands before ``iteration`` by orders with ``hold``, whose ``sequence`` it names."""

    number: Positive
    generation: Count
    iteration: Count
    sequence: Count


class Heartbeat(Value, frozen=True, kw_only=True, tag="heartbeat"):
    """A sign of life each second, from a thread of its own; not numbered, not kept."""

    cpu: Fraction = 0.0
    memory: Fraction = 0.0


class ServerHello(Value, frozen=True, kw_only=True, tag="server-hello"):
    """A server that listens. Sizes are the workload's tensors in order, in elements."""

    number: Positive
    host: str
    port: Positive
    tensor_sizes: list[Positive]


class ServerReport(Value, frozen=True, kw_only=True, tag="server-report"):
    """What one server did since its last report."""

    number: Positive
    iteration: Count
    """The lowest version of its blocks: iterations that are closed on all of them."""
    bytes_in: Count
    bytes_out: Count
    busy_s: Seconds
    missing: list[tuple[int, int]] = []
    """(iteration, rank) of members that left before they had contributed everywhere."""


class SlotOffer(Value, frozen=True, kw_only=True):
    """One place for a worker on an agent's machine."""

    emulate: Emulation | None = None


class ProcessName(Value, frozen=True, kw_only=True):
    """One life of one process of a job."""

    job: Positive
    role: Role
    index: Count
    instance: Name


class AgentHello(Value, frozen=True, kw_only=True, tag="agent-hello"):
    """The first message of an agent's connection: what it offers and what it is running."""

    number: Positive
    name: Name
    version: str
    host: str
    """The address at which workers elsewhere reach servers on this machine."""
    slots: list[SlotOffer]
    server_slots: Count
    labels: dict[str, str]
    cpu_count: Positive
    memory_bytes: Positive
    running: list[ProcessName] = []


class ProcessStarted(Value, frozen=True, kw_only=True, tag="process-started"):
    """A process that the agent was ordered to start runs."""

    number: Positive
    process: ProcessName
    pid: Positive


class ProcessEnded(Value, frozen=True, kw_only=True, tag="process-ended"):
    """A process ended: its exit status (negative: the signal), and the last lines of its standard error."""

    number: Positive
    process: ProcessName
    status: int
    tail: str = ""


class AgentHeartbeat(Value, frozen=True, kw_only=True, tag="agent-heartbeat"):
    """The machine's load, each second; not numbered, not kept."""

    cpu: Fraction
    memory: Fraction
    bytes_sent: Count = 0
    bytes_received: Count = 0


class Refresh(Value, frozen=True, kw_only=True, tag="refresh"):
    """A page asks for what it missed after ``since``."""

    since: Count = 0


WorkerMessage = (
    WorkerHello | IterationReport | ProgressReport | Computed | Held | Evaluation | WorkerFinished | Heartbeat
)
ServerMessage = ServerHello | ServerReport | Heartbeat
AgentMessage = AgentHello | ProcessStarted | ProcessEnded | AgentHeartbeat
