"""Rules for native jobs, whose workers agents start, and attached jobs, whose ranks a launcher starts.

In an attached job the script owns model, optimizer and gradient sums. So most fields of a spec do not apply; each of
these is refused with the alternative. With a ``command``, agents are the launcher: they start the script, one process
per rank.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, to_builtins
from msgspec.structs import fields, replace

from controlplane.protocol.parts import SpecError
from controlplane.protocol.text import NO_NUL

Launch = Literal["native", "attached"]

Wait = Annotated[float, Meta(ge=1.0, le=1e7)]
"""How long a job without ranks waits for them."""

DEFAULT_WAIT_S: Final = 3600.0

Lease = Annotated[float, Meta(ge=10.0, le=1e6)] | None
"""How long a job without ranks continues without a renewal by its launcher."""

Argument = Annotated[str, Meta(max_length=4_096, pattern=NO_NUL)]
Command = Annotated[list[Argument], Meta(min_length=1, max_length=200)]
"""A program and its arguments, as they are passed to the operating system: no shell reads them."""

IMPLIED: Final[Mapping[str, Any]] = {"servers": 0, "communication": "all-reduce"}
"""Defaults for the spec of an attached job."""

WORKLOAD: Final = "attached"
DATASET: Final = "none"
"""The workload of an attached job is only displayed: any name is accepted, and no dataset."""

SCRIPT: Final = "with launch attached, where the script has its own"

REFUSED: Final[Mapping[str, str]] = {
    "servers": "0 with launch attached: the script's own engine moves the tensors; leave it out, or use launch: native",
    "communication": "none with launch attached: the script's own engine moves the tensors; leave it out, or use "
    "launch: native",
    "server_mode": "none with launch attached: it has no servers; leave it out, or use launch: native",
    "optimizer": f"none {SCRIPT}; leave it out, and set it in the script",
    "aggregation": "none with launch attached: watch() weighs gradients by samples; leave it out",
    "federated": "none with launch attached; leave it out, and set local steps in the script or its framework",
    "evaluate": f"none {SCRIPT}; leave it out, and show scores with log() in the script",
    "elastic": "none with launch attached and no command: its launcher starts ranks again; leave it out, and set it "
    "there (torchrun --max-restarts)",
    "checkpoint": f"none {SCRIPT}; leave it out, and save in the script, with the loader's state_dict()",
    "start_from": f"none {SCRIPT}; leave it out, and load in the script, with the loader's load_state_dict()",
    "on_nan": "none with launch attached: the script handles a loss that is not a number; leave it out",
    "emulate": "none with launch attached: its machines are real; leave it out, or use launch: native",
    "emulate_servers": "none with launch attached: it has no servers; leave it out, or use launch: native",
}
"""Fields that must keep their defaults, and what is expected of them. With a command, ``elastic`` may set restarts."""

NO_RESTARTS: Final[Mapping[str, Any]] = {"restarts": 0}
"""The default with a command, as of torchrun: only a script that saves its state continues after a restart."""

EXAMPLE: Final = "[python, train.py, --epochs, '5']"

NATIVE_ONLY: Final = ("options", "data", "partition", "init")
"""Parts of a workload that only Paceline's own training loop reads."""


def with_implied(document: dict[str, Any]) -> dict[str, Any]:
    """The document of an attached job with defaults: its ranks report their number and batch size later."""
    workload = document.get("workload", {})
    if isinstance(workload, str):
        workload = {"name": workload}
    if isinstance(workload, Mapping):
        workload = {"name": WORKLOAD, "dataset": DATASET, **workload}
    own = {**document, "workload": workload}
    elastic = document.get("elastic", {})
    if document.get("command") is not None and isinstance(elastic, Mapping):
        own["elastic"] = {**NO_RESTARTS, **elastic}
    return {**IMPLIED, "workers": 1, "batch_size": _least(document), **own}


def check_argv(command: object) -> None:
    """Check that a command is a list of arguments that names a program.

    Raises:
        SpecError: with what was found and what is expected.
    """
    if isinstance(command, str):
        raise SpecError("command", command, f"a list of arguments, such as {EXAMPLE}: no shell reads it")
    if isinstance(command, list) and command[:1] in ([], [""]):
        raise SpecError("command", command, f"a program and its arguments, such as {EXAMPLE}")


def _least(document: Mapping[str, Any]) -> Any:
    """A valid batch size, until the ranks have reported theirs."""
    limits = document.get("limits")
    low = limits.get("minimum", 1) if isinstance(limits, Mapping) else 1
    given = [low, document.get("sample_multiple", 1)]
    whole = [each for each in given if isinstance(each, int) and not isinstance(each, bool) and each > 0]
    return max(whole, default=1)


def check_launch(spec: Any) -> None:
    """Check that every field of a ``JobSpec`` applies to its kind of launch.

    Raises:
        SpecError: with the field, what was found, what is expected and the alternative.
    """
    defaults = {each.name: each.default for each in fields(type(spec))}
    if spec.launch == "native":
        if spec.command is not None:
            expected = "none with launch native: agents run Paceline's own loop; leave it out, or use launch: attached"
            raise SpecError("command", list(spec.command), expected)
        for name in ("sample_multiple", "wait_s", "lease_s", "fill"):
            if getattr(spec, name) != defaults[name]:
                found = to_builtins(getattr(spec, name))
                raise SpecError(name, found, "none with launch native; leave it out, or use attached")
        return
    for name, expected in REFUSED.items():
        usual = IMPLIED.get(name, defaults[name])
        if (found := getattr(spec, name)) != usual and not (name == "elastic" and spec.command is not None):
            raise SpecError(name, to_builtins(found), expected)
    if spec.command is not None:
        _check_command(spec, defaults)
    if spec.guard is not None and spec.fill is None:
        expected = "none with launch attached, unless its global batch may grow: add fill, or leave it out"
        raise SpecError("guard", spec.guard.mode, expected)
    placement = spec.synchronization.placement
    if placement != type(spec.synchronization)().placement:
        expected = "none with launch attached: it has no servers to place parameters on; for"
        cure = f"{expected} {placement.name} use launch: native"
        raise SpecError("synchronization.placement.name", placement.name, cure)
    for part in NATIVE_ONLY:
        if found := getattr(spec.workload, part):
            expected = "none with launch attached, where model and data are the script's; leave it out"
            raise SpecError(f"workload.{part}", found, expected)
    if spec.workload.precision != "fp32":
        expected = "none with launch attached: the script computes as it says itself (torch.autocast); leave it out"
        raise SpecError("workload.precision", spec.workload.precision, expected)
    check_multiple(spec)


def _check_command(spec: Any, defaults: Mapping[str, Any]) -> None:
    """Check the fields of a job whose script agents start."""
    check_argv(spec.command)
    if spec.lease_s is not None:
        expected = "none with a command: agents start the script, so that no launcher renews a lease; leave it out"
        raise SpecError("lease_s", spec.lease_s, expected)
    if replace(spec.elastic, restarts=0) != replace(defaults["elastic"], restarts=0):
        expected = "restarts alone, with a command: all ranks end and start together; leave the others out"
        raise SpecError("elastic", to_builtins(spec.elastic), expected)


def check_multiple(spec: Any) -> None:
    """Check that shares which are multiples of this number can add up to the global batch, within the limits.

    Raises:
        SpecError: with the field, what was found and what is allowed.
    """
    multiple = spec.sample_multiple
    if spec.batch_size % multiple:
        raise SpecError("sample_multiple", multiple, f"a divisor of batch_size, which is {spec.batch_size}")
    low, high = spec.limits.minimum, spec.limits.maximum
    if low % multiple and low != 1:
        raise SpecError("limits.minimum", low, f"a multiple of sample_multiple, which is {multiple}")
    if high is not None and high % multiple:
        raise SpecError("limits.maximum", high, f"a multiple of sample_multiple, which is {multiple}")


def as_native(spec: Any) -> Any:
    """An attached job as it is simulated: all ranks wait for one server, whose exchange takes as long as the
    all-reduce.

    Any other ``JobSpec`` is returned unchanged.
    """
    if spec.launch == "native":
        return spec
    native = {"launch": "native", "command": None, "communication": "servers", "servers": 1, "sample_multiple": 1}
    return replace(spec, **native, wait_s=DEFAULT_WAIT_S, lease_s=None, fill=None, guard=None)
