"""Kinds of conditions that a rule can watch, and their parameters. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A number that a rule can set."""

    title: str
    default: float
    least: float
    most: float
    unit: str = ""
    """``s``, or ``%`` for a share of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A condition."""

    title: str
    what: str
    """When it holds, for a person who chooses one."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    is_event: bool = False
    """A single event: it fires once, without a message when it ends."""


def _share(title: str, default: float) -> Parameter:
    return Parameter(title=title, default=default, least=0.01, most=1.0, unit="%")


def _seconds(title: str, default: float) -> Parameter:
    return Parameter(title=title, default=default, least=5.0, most=86_400.0, unit="s")


KINDS: Final[Mapping[str, Kind]] = {
    "job-stalled": Kind(
        title="Job stalled",
        what="A running job has reported nothing for a while, an iteration of an attached job does not end, or all its"
        " ranks are gone.",
        parameters={"after_s": _seconds("No report for", 120.0)},
    ),
    "worker-lost": Kind(
        title="Worker or server lost",
        what="A process of a live job has ended by itself or sends no heartbeats, until another one has its place.",
    ),
    "waiting": Kind(
        title="Waiting for others",
        what="Workers of a running job wait for others for more than this part of their time.",
        parameters={"share": _share("Above", 0.3)},
    ),
    "straggler": Kind(
        title="Straggler",
        what="A worker or server is flagged, and the iteration would be shorter by this part without it.",
        parameters={"cost": _share("Costs at least", 0.1)},
    ),
    "checkpoint-failed": Kind(title="Checkpoint failed", what="A checkpoint cannot be used.", is_event=True),
    "loss-not-finite": Kind(
        title="Loss not finite", what="A loss or the parameters are NaN or infinite; also where that ended the job."
    ),
    "job-failed": Kind(title="Job failed", what="A job has failed.", is_event=True),
    "job-done": Kind(title="Job done", what="A job has succeeded.", is_event=True),
    "ingest-behind": Kind(
        title="Ingest behind",
        what="The database is behind what jobs report, so that pages show old data.",
        parameters={"after_s": _seconds("By", 30.0)},
    ),
    "disk-filling": Kind(
        title="Disk filling",
        what="Little is free on the disk with the data folder.",
        parameters={"free": _share("Free below", 0.1)},
    ),
    "redis-filling": Kind(
        title="Redis filling",
        what="Redis uses much of the memory that it may use.",
        parameters={"used": _share("Used above", 0.75)},
    ),
    "delivery-failed": Kind(
        title="Delivery failed",
        what="Messages to a target could not be delivered. Send this rule to another target.",
    ),
}
