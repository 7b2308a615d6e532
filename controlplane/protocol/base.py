"""The base class of everything that crosses a wire or is kept in a log, and the types of its numbers and texts."""

from typing import Annotated

import msgspec

from controlplane.protocol.text import PLAIN

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number of things: zero or more."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
"""A number of things of which there must be at least one."""

Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
"""A duration from the reporter's monotonic clock, in seconds."""

Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
"""A share of a whole."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=PLAIN)]
"""What something is called: on one line, without control characters, since names reach terminals, logs and pages."""

Host = Annotated[str, msgspec.Meta(max_length=255, pattern=PLAIN)]
"""An address; empty: none."""

LabelKey = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=PLAIN)]
LabelValue = Annotated[str, msgspec.Meta(max_length=200, pattern=PLAIN)]
Labels = Annotated[dict[LabelKey, LabelValue], msgspec.Meta(max_length=64)]
"""What machines carry, and jobs ask for."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable value with named fields; unknown fields are ignored, so that a newer peer may say more."""
