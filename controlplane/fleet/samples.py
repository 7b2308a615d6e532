"""Samples of machines' measurements, each in its own column or in ``others``."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from django.db.models import OuterRef, QuerySet, Subquery

from controlplane.fleet.models import Agent, AgentSample
from controlplane.protocol.measurements import OF_MACHINES

OWN_COLUMNS: Final = ("cpu", "memory")
OTHERS: Final = tuple(each.name for each in OF_MACHINES if each.name not in OWN_COLUMNS)


def sample_of(agent: int, at: datetime, measured: Mapping[str, float]) -> AgentSample:
    """An unsaved row with the machine's reported values."""
    own = {name: measured[name] for name in OWN_COLUMNS}
    others = {name: measured[name] for name in OTHERS if name in measured}
    return AgentSample(agent_id=agent, at=at, others=others, **own)


def with_newest(agents: QuerySet[Agent]) -> QuerySet[Agent]:
    """The agents, annotated with their last sample: ``sampled_at``, ``sampled_cpu`` and so on; None: no sample."""
    samples = AgentSample.objects.filter(agent=OuterRef("pk")).order_by("-at")
    fields = ("at", *OWN_COLUMNS, "others")
    return agents.annotate(**{f"sampled_{name}": Subquery(samples.values(name)[:1]) for name in fields})
