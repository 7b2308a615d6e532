"""The base class of all messages and logged values, and the bounded types of their fields.

No field is a bare ``int``, ``float`` or ``str``: every accepted value can be stored by SQLite and PostgreSQL and used
in calculations. NaN is in no range, so a bounded number is a number.
"""

import sys
from typing import Annotated, Final

import msgspec

from controlplane.protocol.text import NO_NUL, PLAIN

MAX_INT32: Final = 2**31 - 1
MAX_COUNT: Final = 2**53 - 1
"""Exact in JSON and as a float; a thousand of them fit into 64 bits when added up."""

MAX_SECONDS: Final = 1e9
MAX_TEXT: Final = 8_192

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of msgspec for bytes that are not a message, including invalid UTF-8 and too deep nesting."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
"""A number of things: zero or more."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
"""A number of things, at least one."""

Count32 = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]
"""A count of at most 32 bits: iterations, generations, ranks, slots, samples of one iteration."""

Positive32 = Annotated[int, msgspec.Meta(ge=1, le=MAX_INT32)]
"""Such a count, at least one."""

Status = Annotated[int, msgspec.Meta(ge=-MAX_INT32, le=MAX_INT32)]
"""An exit status; negative: the signal."""

Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]

Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_SECONDS)]
"""A duration of the reporter's monotonic clock, in seconds: finite, and at most about thirty years."""

Fraction = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
"""A fraction from 0 to 1."""

Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""Any number, but neither infinite nor NaN."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=PLAIN)]
"""A name: one line without control characters, since names are shown in terminals, logs and pages."""

Host = Annotated[str, msgspec.Meta(max_length=255, pattern=PLAIN)]
"""An address; empty: none."""

LabelKey = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=PLAIN)]
LabelValue = Annotated[str, msgspec.Meta(max_length=200, pattern=PLAIN)]
Labels = Annotated[dict[LabelKey, LabelValue], msgspec.Meta(max_length=64)]
"""Labels of machines, and the labels that jobs require."""

Word = Annotated[str, msgspec.Meta(max_length=255, pattern=NO_NUL)]
"""A short text, or none: a version, an address, a label."""

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT, pattern=NO_NUL)]
"""Sentences for display, or the end of a process's output."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable value with named fields; unknown fields are ignored, so that a newer peer may send more."""
