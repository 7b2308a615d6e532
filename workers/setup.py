"""What every process of one agent is told beside its order."""

from controlplane.protocol.base import Positive, Value


class Setup(Value, frozen=True, kw_only=True):
    """What the processes of one agent share; it holds no secret."""

    url: str
    host: str = "127.0.0.1"
    """The address at which servers listen."""
    threads: Positive = 1
    """Of torch, within one process."""
    insecure: bool = False
