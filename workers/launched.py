"""Agents that a launcher like torchrun starts, one for each rank: what tells them apart."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Launched:
    """The rank that a launcher gave this process; None: nobody did."""

    rank: str | None

    @classmethod
    def by(cls, environment: Mapping[str, str]) -> "Launched":
        """As torchrun tells it: by ``RANK``, beside ``WORLD_SIZE``."""
        return cls(environment.get("RANK") if "WORLD_SIZE" in environment else None)

    def named(self, name: str) -> str:
        """A name of this agent's own."""
        return name if self.rank is None else f"{name}-{self.rank}"

    def filled(self, argument: str | None) -> str | None:
        """``argument`` with ``{rank}`` replaced: each agent needs a token of its own."""
        return argument if argument is None or self.rank is None else argument.replace("{rank}", self.rank)
