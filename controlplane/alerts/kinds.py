"""Defines the kinds of conditions and their parameters. Pure."""

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
    """``s``, or ``%`` for a fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A condition."""

    title: str
    what: str
    """When the condition is true, as help text of the form."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    is_event: bool = False
    """Whether it is an event, which fires once and sends no resolved message."""


def _share(title: str, default: float) -> Parameter:
    return Parameter(title=title, default=default, least=0.01, most=1.0, unit="%")


def _seconds(title: str, default: float) -> Parameter:
    return Parameter(title=title, default=default, least=5.0, most=86_400.0, unit="s")


KINDS: Final[Mapping[str, Kind]] = {
    "job-stalled": Kind(
        title="Job stalled",
        what="A running job has stopped reporting, a job does not finish starting, an iteration of an attached job"
        " hangs, or all its ranks have disconnected.",
        parameters={"after_s": _seconds("No progress for", 120.0)},
    ),
    "worker-lost": Kind(
        title="Worker or server lost",
        what="A process of a live job has exited or sends no heartbeats, until it is replaced.",
    ),
    "waiting": Kind(
        title="Waiting for others",
        what="Workers of a running job spend more than this share of their time waiting for other workers.",
        parameters={"share": _share("Above", 0.3)},
    ),
    "straggler": Kind(
        title="Straggler",
        what="A worker or server is flagged, and iterations would be this much shorter without it.",
        parameters={"cost": _share("Costs at least", 0.1)},
    ),
    "checkpoint-failed": Kind(title="Checkpoint failed", what="A checkpoint cannot be used.", is_event=True),
    "loss-not-finite": Kind(
        title="Loss not finite", what="A loss or the parameters are NaN or infinite, including when this ended the job."
    ),
    "job-failed": Kind(title="Job failed", what="A job has failed.", is_event=True),
    "job-done": Kind(title="Job done", what="A job has succeeded.", is_event=True),
    "ingest-behind": Kind(
        title="Ingest behind",
        what="The database is behind the jobs' reports, so pages show old data.",
        parameters={"after_s": _seconds("By", 30.0)},
    ),
    "disk-filling": Kind(
        title="Disk filling",
        what="The disk with the data folder is nearly full.",
        parameters={"free": _share("Free below", 0.1)},
    ),
    "redis-filling": Kind(
        title="Redis filling",
        what="Redis is close to its memory limit.",
        parameters={"used": _share("Used above", 0.75)},
    ),
    "delivery-failed": Kind(
        title="Delivery failed",
        what="Messages to a target could not be delivered. Assign another target to this rule.",
    ),
}
