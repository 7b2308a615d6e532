"""Scenarios: machines, a job, policies to compare, and a paper's figures. Each is a small file.

A scenario consists of values only; ``check`` rejects an impossible one with the field and the cure.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controlplane.core.barriers import is_full
from controlplane.core.choices import Budgeting, Partitioned
from controlplane.policies import registry
from controlplane.protocol.base import Count, Name, Positive, Seconds
from controlplane.protocol.faults import fault_of
from controlplane.protocol.spec import CHOICES, Choice, JobSpec, Part, SpecError, Synchronization, check_combination
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.machines import GpuMachine, MachineSpec
from controlplane.simulator.network import Link, ServerSpec
from controlplane.simulator.numerics.settings import Numerics
from controlplane.simulator.reassignment import Reassignment

DIGITS, DIGITS_CLASSES = 1797, 10
DIGITS_FOR = ("softmax-regression", "mlp", "cnn")


class Group(Part, frozen=True, kw_only=True):
    """Equal workers, in order of rank."""

    count: Positive
    machine: MachineSpec
    link: Link = Link()
    starts_s: Seconds = 0.0
    """When their processes say hello."""
    joins_s: Seconds | None = None
    """When slots for them are found and they join the running job; None if they are there from the beginning."""


class Happening(Part, frozen=True, kw_only=True):
    """A process ends: its agent soon reports it (crash, leave), or its whole machine disappears (vanish). Or an
    operator requests something: to exclude a worker immediately, to include it again, or to drain a worker or server.
    """

    kind: Literal["crash", "leave", "vanish", "exclude", "include", "drain"]
    at_s: Seconds
    index: Count
    role: Literal["worker", "server"] = "worker"


class PaperFigure(Part, frozen=True, kw_only=True):
    """One figure of a paper that the scenario reproduces."""

    where: str
    statement: str
    policy: Name
    metric: Literal["iteration_s", "update_s", "updates", "updates_to_target", "time_to_target_s"]
    ratio: float
    """The policy's value divided by the baseline's."""


class Scenario(Part, frozen=True, kw_only=True):
    """One experiment."""

    name: Name
    title: str
    story: str
    """What it models, and which values were calibrated by the paper's figures."""
    spec: JobSpec
    """Its synchronization is replaced by that of each policy."""
    policies: dict[str, Synchronization]
    """The compared policies, by name."""
    baseline: Name
    groups: tuple[Group, ...]
    tensor_sizes: tuple[Positive, ...] = (1000,)
    """Elements of each parameter tensor; they determine how many bytes are transferred."""
    servers: ServerSpec = ServerSpec()
    """Settings of the job's servers, except those in ``odd_servers``."""
    odd_servers: dict[int, ServerSpec] = {}
    spare_servers: Count = 0
    """Machines on which more servers can be started when the placement requests them."""
    overlaps: bool = False
    """Parameters are exchanged while workers compute, each direction separately; with servers of limited bandwidth."""
    by_block: bool = False
    """Servers close each block of an iteration separately, as live ones do; with servers of limited bandwidth."""
    servers_beside_workers: bool = False
    """The job's servers run on the workers' machines, in turn, and share their links; only with ``overlaps``."""
    control: ControlPlane = ControlPlane()
    wavering: Wavering = Wavering()
    exchanges: Wavering = Wavering()
    """How a worker's exchanges with servers of limited bandwidth vary, each independently."""
    reassigning: dict[str, Reassignment] = {}
    """Policies under which workers pass work to one another within an iteration: a baseline, see ``reassignment``."""
    numerics: Numerics | None = None
    """Computed training; None: times only."""
    happenings: tuple[Happening, ...] = ()
    horizon_s: Annotated[float, Meta(gt=0.0)] = 3600.0
    """Virtual time after which a run ends unfinished; generated series have this length and then repeat."""
    warm_up: Count = 0
    """First iterations, which are not counted in any figure."""
    paper: tuple[PaperFigure, ...] = ()

    @property
    def machines(self) -> list[Group]:
        """The group of each rank."""
        return [group for group in self.groups for _ in range(group.count)]


_decoder: msgspec.msgpack.Decoder[Scenario] = msgspec.msgpack.Decoder(Scenario)
"""Created once, before there are threads."""


def check(scenario: Scenario) -> None:
    """Raise ``ScenarioError`` unless the scenario is possible."""
    _check_ranges(scenario)
    workers, machines = scenario.spec.workers, sum(group.count for group in scenario.groups)
    if machines != workers:
        raise ScenarioError("groups", f"{machines} machines", f"one for each of the {workers} workers of the spec")
    if not scenario.policies:
        raise ScenarioError("policies", {}, "at least one worker to sample")
    if scenario.baseline not in scenario.policies:
        raise ScenarioError("baseline", scenario.baseline, f"one of {', '.join(scenario.policies)}")
    if not scenario.tensor_sizes:
        raise ScenarioError("tensor_sizes", (), "at least one tensor")
    for label, chosen in scenario.policies.items():
        _check_policies(f"policies.{label}", chosen, scenario)
    for figure in scenario.paper:
        if figure.policy not in scenario.policies:
            raise ScenarioError("paper.policy", figure.policy, f"one of {', '.join(scenario.policies)}")
    if scenario.spec.reduces:
        raise ScenarioError("spec.communication", "all-reduce", "servers: sums among workers are not simulated")
    if scenario.spec.workers_hold and scenario.spec.checkpoint is not None:
        raise ScenarioError("spec.checkpoint", scenario.spec.checkpoint, "none: what workers keep is not simulated")
    _check_reassigning(scenario)
    _check_processes(scenario)
    _check_memory(scenario)
    _check_numerics(scenario)
    _check_overlap(scenario)
    stop = scenario.spec.stop
    if stop.iterations is None and stop.seconds is None and (stop.accuracy is None or scenario.numerics is None):
        raise ScenarioError("spec.stop", stop, "iterations or seconds, or an accuracy with numerics")
    if stop.iterations is not None and scenario.warm_up >= stop.iterations:
        cure = f"less than the {stop.iterations} iterations of spec.stop: those after it enter the figures"
        raise ScenarioError("warm_up", scenario.warm_up, cure)


def chosen(scenario: Scenario, name: str) -> Synchronization:
    """The policies named ``name``: one of the scenario's, or registered names as in ``lb-bsp-cpu+pssp``.

    Raises:
        ScenarioError: for an unknown policy; lists the known ones.
    """
    if name in scenario.policies:
        return scenario.policies[name]
    found, answered = scenario.policies[scenario.baseline], dict[str, str]()
    for part in name.split("+"):
        questions = [question for question in CHOICES if part in registry.names(question)]
        if not questions:
            known = "; ".join(f"{question}: {', '.join(registry.names(question))}" for question in CHOICES)
            cure = f"one of {', '.join(scenario.policies)}, or registered policies joined by + ({known})"
            raise ScenarioError("policies", part, cure)
        if (other := answered.setdefault(questions[0], part)) != part:
            raise ScenarioError("policies", name, f"one {questions[0]}: {other} or {part}")
        found = replace(found, **{questions[0]: Choice(name=part)})
    _check_possible("policies", found, scenario)
    return found


def _check_ranges(scenario: Scenario) -> None:
    """Check ranges, since structs created in Python are not validated."""
    try:
        _decoder.decode(msgspec.msgpack.encode(scenario))
    except msgspec.ValidationError as error:
        field, expected = fault_of(error)
        raise ScenarioError(field, _found(scenario, field), _cure(expected, field)) from None
    numbers = msgspec.to_builtins(scenario)
    for field, value in _numbers(numbers):
        if math.isinf(value) and not field.endswith(".until_s"):
            raise ScenarioError(field, value, "a finite number")
    low, high = scenario.wavering.spike_times
    if not 0.0 < low <= high:
        raise ScenarioError("wavering.spike_times", (low, high), "two numbers above 0, the smaller one first")


def _found(scenario: Scenario, field: str) -> object:
    """The value at ``groups[0].machine.slowness``."""
    found: object = scenario
    for name, at in re.findall(r"(\w+)|\[(\d+)\]", field):
        if isinstance(found, dict):
            found = "a value out of range"
        elif isinstance(found, Sequence) and at:
            found = found[int(at)]
        else:
            found = getattr(found, name, "a value out of range")
    return found


def _cure(expected: str, field: str) -> str:
    """What is expected instead of a value that is out of range."""
    if expected.startswith("Invalid enum value") and field.endswith(".kind"):
        return f"one of {', '.join(get_args(get_type_hints(Happening)['kind']))}"
    return expected


def _numbers(part: object, field: str = "") -> Iterator[tuple[str, float]]:
    """Every float, with its path."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from _numbers(value, f"{field}.{name}".lstrip("."))
    elif isinstance(part, list | tuple):
        for at, value in enumerate(part):
            yield from _numbers(value, f"{field}[{at}]")
    elif isinstance(part, float):
        yield field, part


def _check_numerics(scenario: Scenario) -> None:
    numerics = scenario.numerics
    if numerics is None:
        return
    optimizer = numerics.optimizer
    if numerics.problem == "lasso" and (optimizer.name != "sgd" or optimizer.momentum):
        raise ScenarioError("numerics.optimizer", optimizer, "sgd without momentum, which the lasso's shrinkage is for")
    if numerics.federated is not None:
        _check_federated(scenario)
    if (
        numerics.problem == "cnn"
        and numerics.dataset == "generated"
        and int(numerics.features**0.5) ** 2 < max(16, numerics.features)
    ):
        raise ScenarioError("numerics.features", numerics.features, "a square of at least 16: pixels of a picture")
    if numerics.dataset == "digits":
        _check_digits(numerics)
    if numerics.partition != "shared" and numerics.samples < 2 * scenario.spec.workers:
        raise ScenarioError("numerics.samples", numerics.samples, "at least two for each worker")


def _check_reassigning(scenario: Scenario) -> None:
    for label in scenario.reassigning:
        if label not in scenario.policies:
            raise ScenarioError("reassigning", label, f"one of {', '.join(scenario.policies)}")
        if scenario.numerics is not None:
            raise ScenarioError(f"reassigning.{label}", "a scenario with numerics", "one where only times matter")
        if any(_gpus(scenario)):
            raise ScenarioError(f"reassigning.{label}", "a GPU", "machines that take samples one after another")


def _check_federated(scenario: Scenario) -> None:
    """A round needs every client's update: work cannot be cut short, and no client continues alone."""
    for label, policy in scenario.policies.items():
        if not is_full(registry.policy_type("barrier", policy.barrier)):
            raise ScenarioError(
                f"policies.{label}.barrier", policy.barrier.name, "bsp: a federated round waits for all"
            )


def _check_digits(numerics: Numerics) -> None:
    if numerics.classes != DIGITS_CLASSES:
        raise ScenarioError("numerics.classes", numerics.classes, f"{DIGITS_CLASSES}, as there are digits")
    if numerics.problem not in DIGITS_FOR or numerics.samples + numerics.held_out != DIGITS:
        found = f"{numerics.problem} on {numerics.samples} samples, {numerics.held_out} held out"
        raise ScenarioError("numerics.dataset", found, f"{DIGITS} together, for one of {', '.join(DIGITS_FOR)}")


def _check_policies(field: str, chosen: Synchronization, scenario: Scenario) -> None:
    try:
        registry.check(chosen)
    except SpecError as error:
        raise ScenarioError(f"{field}.{error.field}", error.found, error.expected) from None
    _check_possible(field, chosen, scenario)


def _check_possible(field: str, chosen: Synchronization, scenario: Scenario) -> None:
    """Check that the policies are possible on these machines and data."""
    spec = replace(scenario.spec, synchronization=chosen)
    try:
        check_combination(spec)
    except SpecError as error:
        raise ScenarioError(f"spec.{error.field}", error.found, error.expected) from None
    if (refusal := registry.refusal(spec)) is not None:
        raise ScenarioError(f"spec.{refusal[0]}", *refusal[1:])
    numerics = scenario.numerics
    batching, data = registry.policy_type("batching", chosen.batching), registry.policy_type("data", chosen.data)
    if isinstance(batching, Budgeting) and (gpus := [rank for rank, _ in _gpus(scenario)]):
        cure = "machines whose work can be cut short between two samples, or another batching"
        raise ScenarioError(f"{field}.batching", f"{chosen.batching.name} with a GPU (w{gpus[0]})", cure)
    if isinstance(data, Partitioned) and numerics is not None and numerics.partition != "shared":
        cure = "shared data, or numerics.partition of shared: that policy splits the data itself"
        raise ScenarioError(f"{field}.data", f"{chosen.data.name} with a {numerics.partition} partition", cure)
    if isinstance(data, Partitioned) and numerics is not None and numerics.federated is not None:
        raise ScenarioError(f"{field}.data", chosen.data.name, "shared: clients of a federation have their own data")


def _check_processes(scenario: Scenario) -> None:
    spec = scenario.spec
    for at, happening in enumerate(scenario.happenings):
        count = spec.workers if happening.role == "worker" else spec.servers
        if happening.at_s >= scenario.horizon_s:
            cure = f"less than horizon_s, which is {scenario.horizon_s:g}"
            raise ScenarioError(f"happenings[{at}].at_s", happening.at_s, cure)
        if happening.index >= count:
            found = f"{happening.role} {happening.index}"
            raise ScenarioError(f"happenings[{at}]", found, f"an index below {count}")
        if happening.role == "server" and happening.kind in ("exclude", "include"):
            cure = "drain: a server leaves only when its blocks are elsewhere"
            raise ScenarioError(f"happenings[{at}]", f"a server to {happening.kind}", cure)
        if happening.role == "server" and happening.kind == "vanish" and spec.elastic.restarts:
            cure = "crash or leave, or spec.elastic.restarts of 0: the simulator has no other machine"
            raise ScenarioError(f"happenings[{at}]", "a server that vanishes and should be restarted", cure)
    here = [group for group in scenario.machines if group.joins_s is None]
    if scenario.machines[: len(here)] != here:
        raise ScenarioError("groups", "machines that join before others that do not", "those that join as the last")
    least = spec.elastic.minimum_workers or spec.workers
    if len(here) < least:
        cure = f"spec.elastic.minimum_workers of at most {len(here)}" if here else "at least one from the beginning"
        raise ScenarioError("groups", f"{spec.workers - len(here)} machines that join later", cure)
    for index in scenario.odd_servers:
        if index >= spec.servers + scenario.spare_servers:
            raise ScenarioError("odd_servers", index, f"an index below {spec.servers + scenario.spare_servers}")


def _check_overlap(scenario: Scenario) -> None:
    """Check that all workers begin an iteration with the same version and no server is lost, as overlapping exchanges
    require.
    """
    if scenario.servers_beside_workers and not scenario.overlaps:
        raise ScenarioError("servers_beside_workers", True, "false, unless overlaps is true")
    if scenario.overlaps and scenario.by_block:
        raise ScenarioError("by_block", True, "false, as overlaps is true")
    if not (scenario.overlaps or scenario.by_block):
        return
    field = "overlaps" if scenario.overlaps else "by_block"
    most = scenario.spec.servers + scenario.spare_servers
    servers = [scenario.odd_servers.get(index, scenario.servers) for index in range(most)]
    if any(server.bytes_per_s is None for server in servers):
        raise ScenarioError("servers.bytes_per_s", None, f"a number, as {field} is true")
    for label, policy in scenario.policies.items():
        if not is_full(registry.policy_type("barrier", policy.barrier)):
            raise ScenarioError(f"policies.{label}.barrier", policy.barrier.name, f"bsp, as {field} is true")
    if any(happening.role == "server" for happening in scenario.happenings):
        if scenario.by_block:
            raise ScenarioError("happenings", "a server that is lost", "none, as by_block is true")
        if scenario.spec.checkpoint is None:
            raise ScenarioError("spec.checkpoint", None, "one, as overlaps is true and a server is lost")


def _check_memory(scenario: Scenario) -> None:
    for rank, machine in _gpus(scenario):
        if scenario.spec.batch_size > machine.memory_samples:
            found, cure = f"{machine.memory_samples} samples of memory", f"{scenario.spec.batch_size}, the batch size"
            raise ScenarioError(f"machine of w{rank}", found, f"at least {cure}")


def _gpus(scenario: Scenario) -> Iterator[tuple[int, GpuMachine]]:
    for rank, group in enumerate(scenario.machines):
        if isinstance(group.machine, GpuMachine):
            yield rank, group.machine
