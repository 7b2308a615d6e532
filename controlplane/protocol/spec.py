"""What a user asks for: the job spec, from YAML or JSON to one validated value.

Shapes and ranges are checked here. Whether a policy or workload of that name exists, and what its parameters may
be, is for the registries that know them.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from controlplane.protocol.base import Fraction, Name

MAX_WORKERS = 10_000
MAX_SERVERS = 1_000
MAX_BATCH = 1_000_000
"""Samples per worker and iteration."""

MAX_GLOBAL_BATCH = 2_000_000_000
MAX_ITERATIONS = 1_000_000_000
MAX_SEED = 2**63 - 1

Rate = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
Iterations = Annotated[int, msgspec.Meta(ge=1, le=MAX_ITERATIONS)]
Batch = Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH)]


class SpecError(ValueError):
    """A spec that cannot be accepted: names the field, what was found, and what is allowed."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field or 'spec'}: found {found!r}, expected {expected}")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a spec; a field that does not exist is an error, since it is most often a typing mistake."""


class Choice(Part, frozen=True, kw_only=True):
    """One of the registered policies by name, with the parameters that differ from its defaults."""

    name: Name
    parameters: dict[str, Any] = {}


class Workload(Part, frozen=True, kw_only=True):
    """What is trained on what: ``module:factory`` or a catalogue name, a data set, and options of the workload."""

    name: Name
    dataset: Name = "digits"
    options: dict[str, Any] = {}


class Synchronization(Part, frozen=True, kw_only=True):
    """The four independent choices of a job."""

    batching: Choice = Choice(name="uniform")
    barrier: Choice = Choice(name="bsp")
    placement: Choice = Choice(name="round-robin")
    data: Choice = Choice(name="shared")


class Optimizer(Part, frozen=True, kw_only=True):
    """A torch optimiser that the servers apply to their blocks."""

    name: Name = "sgd"
    lr: Rate = 0.1
    momentum: Fraction = 0.0
    weight_decay: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0


class Evaluate(Part, frozen=True, kw_only=True):
    """How often the held-out split is scored, in iterations."""

    every: Iterations = 20


class Stop(Part, frozen=True, kw_only=True):
    """When a job ends: whichever comes first. ``seconds`` count from the first iteration."""

    iterations: Iterations | None = None
    accuracy: Fraction | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)] | None = None


class Emulation(Part, frozen=True, kw_only=True):
    """A machine slower than the one it runs on: real gradients, then a pause up to the stated speed."""

    samples_per_second: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]


class Limits(Part, frozen=True, kw_only=True):
    """Bounds of one worker's share, in samples."""

    minimum: Batch = 1
    maximum: Annotated[int, msgspec.Meta(ge=1, le=MAX_WORKERS * MAX_BATCH)] | None = None


class JobSpec(Part, frozen=True, kw_only=True):
    """One training run. ``batch_size`` is per worker; the global batch is ``workers * batch_size`` and stays so."""

    name: Name
    workload: Workload
    workers: Annotated[int, msgspec.Meta(ge=1, le=MAX_WORKERS)]
    servers: Annotated[int, msgspec.Meta(ge=1, le=MAX_SERVERS)] = 1
    batch_size: Batch
    labels: dict[str, str] = {}
    limits: Limits = Limits()
    synchronization: Synchronization = Synchronization()
    optimizer: Optimizer = Optimizer()
    evaluate: Evaluate = Evaluate()
    stop: Stop = Stop()
    emulate: list[Emulation] | None = None
    seed: Annotated[int, msgspec.Meta(ge=0, le=MAX_SEED)] = 0

    @property
    def global_batch(self) -> int:
        """Samples per iteration over all workers."""
        return self.workers * self.batch_size


def parse_spec(document: object) -> JobSpec:
    """The validated spec of a parsed YAML or JSON document.

    Policy choices are written flat (``{name: lb-bsp-cpu, predictor: ema}``), or as a bare name.

    Raises:
        SpecError: naming the field, what was found and what is allowed.
    """
    if not isinstance(document, Mapping):
        raise SpecError("", document, "a mapping with name, workload, workers and batch_size")
    nested = dict(document)
    synchronization = nested.get("synchronization")
    if isinstance(synchronization, Mapping):
        nested["synchronization"] = {key: _nest_choice(value) for key, value in synchronization.items()}
    if isinstance(nested.get("workload"), str):
        nested["workload"] = {"name": nested["workload"]}
    try:
        spec = msgspec.convert(nested, JobSpec, strict=True)
    except msgspec.ValidationError as error:
        raise _spec_error(error, nested) from None
    _check_combination(spec)
    return spec


def spec_document(spec: JobSpec) -> dict[str, Any]:
    """The spec as a plain document that ``parse_spec`` reads back to an equal value."""
    document: dict[str, Any] = msgspec.to_builtins(spec)
    for key, choice in document["synchronization"].items():
        document["synchronization"][key] = {"name": choice["name"], **choice["parameters"]}
    return document


def _nest_choice(choice: object) -> object:
    if isinstance(choice, str):
        return {"name": choice}
    if not isinstance(choice, Mapping):
        return choice
    parameters = {key: value for key, value in choice.items() if key != "name"}
    return {"parameters": parameters} | ({"name": choice["name"]} if "name" in choice else {})


def _check_combination(spec: JobSpec) -> None:
    stop = spec.stop
    if stop.iterations is None and stop.accuracy is None and stop.seconds is None:
        raise SpecError("stop", {}, "at least one of iterations, accuracy and seconds")
    if spec.emulate is not None and len(spec.emulate) != spec.workers:
        raise SpecError("emulate", f"{len(spec.emulate)} machines", f"one for each of the {spec.workers} workers")
    if spec.global_batch > MAX_GLOBAL_BATCH:
        allowed = f"at most {MAX_GLOBAL_BATCH // spec.workers} for {spec.workers} workers"
        raise SpecError("batch_size", spec.batch_size, allowed)
    low, high = spec.limits.minimum, spec.limits.maximum
    if low > spec.batch_size:
        raise SpecError("limits.minimum", low, f"at most batch_size, which is {spec.batch_size}")
    if high is not None and high < spec.batch_size:
        raise SpecError("limits.maximum", high, f"at least batch_size, which is {spec.batch_size}")


def _spec_error(error: msgspec.ValidationError, document: object) -> SpecError:
    """Turn msgspec's sentence ("Expected `int` >= 1 - at `$.workers`") into field, found and expected."""
    sentence, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".").replace(".parameters", "")
    sentence = sentence[:1].lower() + sentence[1:]
    if sentence.startswith("object missing required field"):
        missing = sentence.rsplit("`", 2)[1]
        return SpecError(f"{field}.{missing}".lstrip("."), None, "a value: the field is required")
    if sentence.startswith("object contains unknown field"):
        unknown = sentence.rsplit("`", 2)[1]
        return SpecError(f"{field}.{unknown}".lstrip("."), unknown, "no field of that name")
    return SpecError(field, _at(document, field), sentence.removeprefix("expected "))


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
