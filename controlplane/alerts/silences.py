"""Matches alerts with silences. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.alerts.conditions import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Applies to alerts that match all its fields: rule, job and labels."""

    until: datetime
    rule: int | None = None
    job: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def applies(self, rule: int, finding: Finding, now: datetime) -> bool:
        """Whether notifications of this alert are suppressed now."""
        return (
            now < self.until
            and self.rule in (None, rule)
            and self.job in (None, finding.job)
            and all(finding.labels.get(name) == value for name, value in self.labels.items())
        )


def is_silenced(silences: Iterable[Silence], rule: int, finding: Finding, now: datetime) -> bool:
    """Whether any silence applies."""
    return any(each.applies(rule, finding, now) for each in silences)
