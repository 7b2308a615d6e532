"""The base class of everything that crosses a wire or is kept in a log."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number of things: zero or more."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
"""A number of things of which there must be at least one."""

Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
"""A duration from the reporter's monotonic clock, in seconds."""

Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
"""A share of a whole."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable value with named fields; unknown fields are ignored, so that a newer peer may say more."""
