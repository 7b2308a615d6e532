"""The job spec: parses YAML or JSON documents into one validated value.

Shapes and ranges are checked here. The registries check names and parameters of policies and workloads.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from controlplane.protocol import autopilot, guard
from controlplane.protocol.autopilot import Autopilot as Autopilot
from controlplane.protocol.base import MAX_INT32, Fraction, Labels, Name
from controlplane.protocol.documents import check_storable
from controlplane.protocol.emulation import Emulation as Emulation
from controlplane.protocol.emulation import LinkChange as LinkChange
from controlplane.protocol.emulation import LinkEmulation as LinkEmulation
from controlplane.protocol.emulation import read_trace
from controlplane.protocol.energy import Energy as Energy
from controlplane.protocol.faults import fault_of, fields_at
from controlplane.protocol.filling import Fill
from controlplane.protocol.guard import Guard as Guard
from controlplane.protocol.launching import (
    DEFAULT_WAIT_S,
    Command,
    Launch,
    Lease,
    Wait,
    check_argv,
    check_launch,
    with_implied,
)
from controlplane.protocol.parts import MAX_BATCH, Batch, Iterations, Seed
from controlplane.protocol.parts import Choice as Choice
from controlplane.protocol.parts import Part as Part
from controlplane.protocol.parts import SpecError as SpecError
from controlplane.protocol.text import RELATIVE_PATH
from controlplane.protocol.training import FEDERATED, Aggregation, Division, Federated
from controlplane.protocol.training import Optimizer as Optimizer
from controlplane.protocol.training import Workload as Workload

MAX_WORKERS = 10_000
MAX_SERVERS = 1_000
MAX_GLOBAL_BATCH = 2_000_000_000

Priority = Annotated[int, msgspec.Meta(ge=-100, le=100)]


class Synchronization(Part, frozen=True, kw_only=True):
    """The four independent policy choices of a job."""

    batching: Choice = Choice(name="uniform")
    barrier: Choice = Choice(name="bsp")
    placement: Choice = Choice(name="round-robin")
    data: Choice = Choice(name="shared")

    def changes_to(self, target: "Synchronization", questions: Iterable[str]) -> dict[str, Choice]:
        """Those of ``target`` that differ from these, among ``questions``."""
        wanted = {question: getattr(target, question) for question in questions}
        return {question: choice for question, choice in wanted.items() if choice != getattr(self, question)}


CHOICES: Final = Synchronization.__struct_fields__
"""The names of the four choices: batching, barrier, placement, data."""


class Evaluate(Part, frozen=True, kw_only=True):
    """How often the held-out split is evaluated, in iterations."""

    every: Iterations = 20


class Stop(Part, frozen=True, kw_only=True):
    """When a job ends: at the first condition that is met. ``seconds`` count from the first iteration."""

    iterations: Iterations | None = None
    accuracy: Fraction | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] | None = None


class Limits(Part, frozen=True, kw_only=True):
    """Bounds of one worker's share, in samples."""

    minimum: Batch = 1
    maximum: Annotated[int, msgspec.Meta(ge=1, le=MAX_WORKERS * MAX_BATCH)] | None = None


class Elastic(Part, frozen=True, kw_only=True):
    """Behaviour when processes fail, and the minimum number of workers."""

    restarts: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 3
    """How often each worker and server is restarted; the count starts again after ten minutes of uptime."""
    minimum_workers: Annotated[int, msgspec.Meta(ge=1, le=MAX_WORKERS)] | None = None
    """With fewer workers the job pauses, and with this many it may start; None: it starts with all ``workers``, and
    continues with any number.
    """
    global_batch: Literal["keep", "scale"] = "keep"
    """Whether the remaining workers share the whole global batch, or it is proportional to their number."""
    from_scratch: bool = False
    """Whether the job may restart from scratch if a server is lost and there is no checkpoint."""


Folder = Annotated[str, msgspec.Meta(min_length=1, max_length=200, pattern=RELATIVE_PATH)]
"""A relative path that does not lead upwards."""


class Checkpointing(Part, frozen=True, kw_only=True):
    """How often all parameters are written to disk, with the optimizer state."""

    every: Iterations
    keep: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 2
    """How many of the newest are kept."""


class StartFrom(Part, frozen=True, kw_only=True):
    """The checkpoint that a new job starts from: the newest one of another job, or of a folder."""

    job: Annotated[int, msgspec.Meta(ge=1, le=MAX_INT32)] | None = None
    folder: Folder | None = None
    """Below the agents' checkpoint folder."""


class JobSpec(Part, frozen=True, kw_only=True):
    """One training run. ``batch_size`` is per worker; the global batch is always ``workers * batch_size``.

    In a federated job ``batch_size`` is that of a local step; one iteration is a round of ``local_steps`` steps.
    """

    name: Name
    workload: Workload
    launch: Launch = "native"
    """Who starts the workers: agents, or a launcher whose script attaches its ranks (``attached``)."""
    command: Command | None = None
    """Attached jobs: the script that agents start as a program with arguments, one process per rank; None: another
    launcher starts it. No shell reads it."""
    workers: Annotated[int, msgspec.Meta(ge=1, le=MAX_WORKERS)]
    servers: Annotated[int, msgspec.Meta(ge=0, le=MAX_SERVERS)] = 1
    communication: Literal["servers", "all-reduce"] = "servers"
    server_mode: Literal["stateful", "aggregating"] = "stateful"
    """Whether servers hold the parameters and apply the steps, or only sum what every worker then applies."""
    batch_size: Batch
    labels: Labels = {}
    priority: Priority = 0
    """Waiting jobs with a higher priority start first."""
    limits: Limits = Limits()
    sample_multiple: Batch = 1
    """Attached jobs: every share is a multiple of this number."""
    wait_s: Wait = DEFAULT_WAIT_S
    """Attached jobs: how long the job waits for ranks, at first and whenever all are lost, before it fails."""
    lease_s: Lease = None
    """Attached jobs: the launcher renews a lease; the job fails after this long without renewal and without ranks."""
    fill: Fill | None = None
    """Attached jobs: the global batch grows between passes, as memory allows; None: it keeps the script's size."""
    synchronization: Synchronization = Synchronization()
    autopilot: Autopilot | None = None
    """Whether the job changes its policies by itself, or proposes changes; None: only users change them."""
    guard: Guard | None = None
    """Whether a change of policies is judged by the training loss after it; None: it is not."""
    optimizer: Optimizer = Optimizer()
    aggregation: Aggregation | None = None
    """None: weighted by samples, or equal weights in a federation."""
    federated: Federated | None = None
    evaluate: Evaluate = Evaluate()
    elastic: Elastic = Elastic()
    checkpoint: Checkpointing | None = None
    start_from: StartFrom | None = None
    on_nan: Literal["fail", "skip"] = "fail"
    """If a loss is NaN: end the job, or skip that worker's update."""
    stop: Stop = Stop()
    energy: Energy = Energy()
    """Power and prices of workers that are not measured."""
    emulate: list[Emulation | None] | None = None
    """The emulation of each worker; None in its place: the agent's own, or none."""
    emulate_servers: list[LinkEmulation] | None = None
    """Emulations of the first servers, by index; servers that are added later follow."""
    seed: Seed = 0

    @property
    def usual_share(self) -> int:
        """Samples of one worker in one iteration with equal shares; a federated round has several batches."""
        return self.batch_size * (self.federated.local_steps if self.federated else 1)

    @property
    def global_batch(self) -> int:
        """Samples per iteration over all workers."""
        return self.workers * self.usual_share

    @property
    def attached(self) -> bool:
        """Whether a launcher owns the workers, and the user's script the training loop."""
        return self.launch == "attached"

    @property
    def takes_slots(self) -> bool:
        """Whether agents start its processes, on slots that are reserved for them."""
        return not self.attached or self.command is not None

    @property
    def reduces(self) -> bool:
        """Whether workers all-reduce, without servers."""
        return self.communication == "all-reduce"

    @property
    def workers_hold(self) -> bool:
        """Whether every worker holds all parameters and applies each step, so that no other process has them."""
        return self.reduces or self.server_mode == "aggregating"

    @property
    def workers_can_join(self) -> bool:
        """Whether a worker that starts later gets the parameters from another process."""
        return self.server_mode != "aggregating"

    @property
    def asks_peers(self) -> bool:
        """Whether workers listen for progress requests of their peers from the start."""
        return self.synchronization.barrier.parameters.get("sampling") == "peers"

    @property
    def weighing(self) -> Aggregation:
        """The weight of each contribution."""
        return self.aggregation or ("fedavg" if self.federated else "sample-weighted")

    @property
    def division(self) -> Division | None:
        """How samples are divided if each worker keeps its own, as in every federation."""
        return self.workload.partition or ("iid" if self.federated else None)

    @property
    def applied(self) -> Optimizer:
        """The update rule for a sum of contributions, in the process that holds the parameters."""
        return self.federated.server if self.federated else self.optimizer


def parse_spec(document: object) -> JobSpec:
    """The validated spec of a parsed YAML or JSON document.

    Policy choices are written flat (``{name: lb-bsp-cpu, predictor: ema}``), or as a bare name.

    Raises:
        SpecError: naming the field, what was found and what is allowed.
    """
    if not isinstance(document, Mapping):
        raise SpecError("", document, "a mapping with name, workload, workers and batch_size")
    nested = autopilot.read_shorthand(guard.read(document))
    synchronization = nested.get("synchronization")
    if isinstance(synchronization, Mapping):
        nested["synchronization"] = {key: autopilot.nest_choice(value) for key, value in synchronization.items()}
    if "autopilot" in nested:
        nested["autopilot"] = autopilot.nest(nested["autopilot"])
    check_argv(nested.get("command"))
    if nested.get("launch") == "attached":
        nested = with_implied(nested)
    if nested.get("communication") == "all-reduce":
        nested.setdefault("servers", 0)
    if isinstance(nested.get("emulate"), list):
        nested["emulate"] = [_nest_trace(machine, at) for at, machine in enumerate(nested["emulate"])]
    if isinstance(nested.get("workload"), str):
        nested["workload"] = {"name": nested["workload"]}
    try:
        spec = msgspec.convert(nested, JobSpec, strict=True)
    except msgspec.ValidationError as error:
        raise _spec_error(error, nested) from None
    check_storable("workload.options", spec.workload.options)
    check_storable("workload.data", spec.workload.data)
    for question in CHOICES:
        check_storable(f"synchronization.{question}", getattr(spec.synchronization, question).parameters)
    for choice in [*spec.autopilot.batching, *spec.autopilot.barriers] if spec.autopilot else []:
        check_storable("autopilot", choice.parameters)
    check_combination(spec)
    return spec


def spec_document(spec: JobSpec) -> dict[str, Any]:
    """The spec as a plain document that ``parse_spec`` reads back to an equal value."""
    document: dict[str, Any] = msgspec.to_builtins(spec)
    for key, choice in document["synchronization"].items():
        document["synchronization"][key] = {"name": choice["name"], **choice["parameters"]}
    if document["autopilot"] is not None:
        document["autopilot"] = autopilot.flatten(document["autopilot"])
    return document


def _nest_trace(machine: object, at: int) -> object:
    """A trace may be written as the text of a CSV file."""
    if not isinstance(machine, Mapping) or not isinstance(machine.get("trace"), str):
        return machine
    return {**machine, "trace": read_trace(machine["trace"], f"emulate[{at}].trace")}


def check_combination(spec: JobSpec) -> None:
    """Check the combination of fields that are each valid; ``core/combinations.py`` checks the policies.

    Raises:
        SpecError: naming the field, what was found and what is allowed.
    """
    check_launch(spec)
    stop = spec.stop
    if not spec.attached and stop.iterations is None and stop.accuracy is None and stop.seconds is None:
        raise SpecError("stop", {}, "at least one of iterations, accuracy and seconds")
    _check_communication(spec)
    _check_server_mode(spec)
    _check_training(spec)
    if spec.emulate is not None and len(spec.emulate) != spec.workers:
        raise SpecError("emulate", f"{len(spec.emulate)} machines", f"one for each of the {spec.workers} workers")
    if not spec.attached and spec.energy.workers is not None and len(spec.energy.workers) != spec.workers:
        found = f"{len(spec.energy.workers)} machines"
        raise SpecError("energy.workers", found, f"one, or null, for each of the {spec.workers} workers")
    if len(spec.emulate_servers or []) > MAX_SERVERS:
        raise SpecError("emulate_servers", f"{len(spec.emulate_servers or [])} links", f"at most {MAX_SERVERS}")
    origin = spec.start_from
    if origin is not None and (origin.job is None) == (origin.folder is None):
        raise SpecError("start_from", msgspec.to_builtins(origin), "either job or folder")
    least = spec.elastic.minimum_workers
    if least is not None and least > spec.workers:
        raise SpecError("elastic.minimum_workers", least, f"at most workers, which is {spec.workers}")
    if spec.global_batch > MAX_GLOBAL_BATCH:
        allowed = f"at most {MAX_GLOBAL_BATCH // spec.workers} for {spec.workers} workers"
        raise SpecError("batch_size", spec.batch_size, allowed)
    low, high = spec.limits.minimum, spec.limits.maximum
    usual = "batch_size" if spec.federated is None else "batch_size times local_steps"
    if low > spec.usual_share:
        raise SpecError("limits.minimum", low, f"at most {usual}, which is {spec.usual_share}")
    if high is not None and high < spec.usual_share:
        raise SpecError("limits.maximum", high, f"at least {usual}, which is {spec.usual_share}")


def _check_server_mode(spec: JobSpec) -> None:
    """Aggregating servers have no parameters: a worker that joins later could not get them there."""
    if spec.server_mode == "stateful":
        return
    why = "with server_mode aggregating, where only the workers hold parameters"
    if spec.reduces:
        raise SpecError("server_mode", spec.server_mode, "stateful with communication all-reduce, which has no servers")
    if spec.elastic.restarts and spec.checkpoint is None and not spec.elastic.from_scratch:
        cure = f"0 {why}, or checkpoint: {{every: N}}, or elastic: {{from_scratch: true}}"
        raise SpecError("elastic.restarts", spec.elastic.restarts, cure)
    if spec.elastic.minimum_workers is not None:
        raise SpecError("elastic.minimum_workers", spec.elastic.minimum_workers, f"none {why}")
    if spec.federated is not None:
        raise SpecError("federated", msgspec.to_builtins(spec.federated), f"none {why}")


def _check_communication(spec: JobSpec) -> None:
    if not spec.reduces:
        if not spec.servers:
            raise SpecError("servers", 0, "`int` >= 1, or communication: all-reduce")
        return
    if spec.servers:
        raise SpecError("servers", spec.servers, "0 with communication all-reduce, where workers hold the parameters")
    if spec.guard is not None and not spec.attached:
        expected = "none with communication all-reduce, whose barrier and data do not change; leave it out"
        raise SpecError("guard", spec.guard.mode, expected)


def _check_training(spec: JobSpec) -> None:
    if spec.federated is None and spec.weighing in FEDERATED:
        raise SpecError("aggregation", spec.weighing, "sample-weighted or naive, since the job is not federated")


def _spec_error(error: msgspec.ValidationError, document: object) -> SpecError:
    """Turn msgspec's sentence ("Expected `int` >= 1 - at `$.workers`") into field, found and expected."""
    fault = fault_of(error, JobSpec)
    field = fault.field.replace(".parameters", "")
    if fault.expected.startswith("Object missing required field"):
        missing = fault.expected.rsplit("`", 2)[1]
        return SpecError(f"{field}.{missing}".lstrip("."), None, "a value: the field is required")
    if fault.expected.startswith("Object contains unknown field"):
        unknown = fault.expected.rsplit("`", 2)[1]
        expected = f"no field of that name, but one of {', '.join(fields_at(JobSpec, fault.field))}"
        return SpecError(f"{field}.{unknown}".lstrip("."), unknown, expected)
    return SpecError(field, _at(document, field), fault.expected[:1].lower() + fault.expected[1:])


def _at(document: object, path: str) -> object:
    found = document
    for key in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found
