"""The base class of all parts of a spec, the error with the invalid field, and bounded numbers."""

from typing import Annotated, Any

import msgspec

from controlplane.protocol.base import Name, Word

MAX_BATCH = 1_000_000
"""Samples per worker and iteration."""

MAX_ITERATIONS = 1_000_000_000
MAX_SEED = 2**63 - 1

Rate = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
Penalty = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
Iterations = Annotated[int, msgspec.Meta(ge=1, le=MAX_ITERATIONS)]
Batch = Annotated[int, msgspec.Meta(ge=1, le=MAX_BATCH)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=MAX_SEED)]


class SpecError(ValueError):
    """A spec is refused: the field, what was found, and what is allowed."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field or 'spec'}: found {found!r}, expected {expected}")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a spec; unknown fields are errors, since they are most often typing mistakes."""


class Choice(Part, frozen=True, kw_only=True):
    """One of the registered policies by name, with the parameters that differ from its defaults."""

    name: Name
    parameters: dict[Word, Any] = {}

    @property
    def flat(self) -> dict[str, Any]:
        """As it is written in a spec: its name and parameters side by side."""
        return {"name": self.name, **self.parameters}
