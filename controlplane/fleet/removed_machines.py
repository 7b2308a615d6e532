"""What stays of a machine that was removed: processes that ran on it keep its name, labels and cores.

Figures, costs and classes of finished jobs are computed from these, so that they stay the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from controlplane.fleet.models import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, known or removed, as far as processes that ran on it need it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    added_labels: Mapping[str, str] = field(default_factory=dict)
    unverified_labels: Mapping[str, str] = field(default_factory=dict)
    cpu_count: int = 1

    @classmethod
    def of(cls, agent: Agent) -> Self:
        """The machine as it is now."""
        return cls(
            name=agent.name,
            labels=agent.labels,
            added_labels=agent.added_labels,
            unverified_labels=agent.unverified_labels,
            cpu_count=agent.cpu_count,
        )

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> Self:
        """The machine as ``document`` has it."""
        return msgspec.convert(document, cls)

    @property
    def document(self) -> dict[str, Any]:
        """As it is stored."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @property
    def placed_by(self) -> dict[str, str]:
        """The labels that decided which jobs ran on it."""
        return {**self.added_labels, **self.labels}
