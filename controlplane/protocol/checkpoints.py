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
    """A complete checkpoint that a server has checked."""

    iteration: Count32
    position: Count


class WholeCheckpoint(Value, frozen=True, kw_only=True):
    """All pieces of a checkpoint are written: one server should write its manifest."""

    iteration: Count32
    position: Count
    pieces: list[SavedBlock]


class Restore(Value, frozen=True, kw_only=True):
    """The source of blocks that no other server hands over."""

    iteration: Count32
    is_start: bool = False
    """Whether the job starts from this checkpoint, rather than having written it."""
