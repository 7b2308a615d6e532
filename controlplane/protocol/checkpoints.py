"""Messages about checkpoints between servers and control plane."""

from controlplane.protocol.base import Count, Count32, Positive, Value


class SavedBlock(Value, frozen=True, kw_only=True, array_like=True):
    """The file of one block: the parameters ``start`` to ``stop``."""

    start: Count
    stop: Positive
    steps: Count
    """How often its values had changed."""
    bytes: Positive
    checksum: Count
    """CRC-32 of the whole file."""


class FoundCheckpoint(Value, frozen=True, kw_only=True):
    """A checkpoint that a server has looked at, and that is whole."""

    iteration: Count32
    position: Count


class WholeCheckpoint(Value, frozen=True, kw_only=True):
    """A checkpoint all of whose pieces are written: one server should write its manifest."""

    iteration: Count32
    position: Count
    pieces: list[SavedBlock]


class Restore(Value, frozen=True, kw_only=True):
    """Where blocks begin that no other server hands over."""

    iteration: Count32
    is_start: bool = False
    """It is a checkpoint that the job starts from, not one that it wrote."""
