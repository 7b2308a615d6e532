"""Settings for every process of an agent, in addition to its order."""

from controlplane.protocol.addresses import is_loopback
from controlplane.protocol.base import Count, Positive, Value


class Setup(Value, frozen=True, kw_only=True):
    """Settings shared by the processes of one agent; without secrets."""

    url: str
    host: str = "127.0.0.1"
    """The address at which servers listen."""
    announced: str | None = None
    """The address at which others reach them; None: the same."""
    threads: Positive = 1
    """Threads of torch in one process."""
    insecure: bool = False
    """Whether the network between machines is private, so that encryption is not needed."""
    encrypt: bool = False
    """Whether to encrypt parameters on all connections, including loopback."""
    data_dir: str | None = None
    """The folder of datasets."""
    checkpoint_dir: str | None = None
    """The folder of checkpoints; it must be the same for all agents of a job."""
    keep_checkpoints_days: Count = 30
    """Checkpoints not written to for this long are removed; 0: never."""
    devices: tuple[str, ...] = ("auto",)
    """Devices of workers, by slot: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``GPU-UUID`` or ``MIG-UUID``."""
    allow_code: bool = False
    """Whether jobs may use their own workloads, and so run their code on this machine."""
    scripts_dir: str | None = None
    """The folder in which scripts of jobs run; None: none are started."""

    def device_of(self, slot: int) -> str:
        """The device of the worker in that slot."""
        return self.devices[slot % len(self.devices)]

    @property
    def reached_at(self) -> str:
        """The address announced to others."""
        return self.announced or self.host

    @property
    def encrypts(self) -> bool:
        """Whether its servers encrypt: beyond this machine, unless the network is private."""
        stays = is_loopback(self.host) and is_loopback(self.reached_at)
        return self.encrypt or not (stays or self.insecure)

    @property
    def protection(self) -> str:
        """How parameters are protected in transit to and from its servers, for display."""
        if self.encrypts:
            return "TLS 1.3"
        return "not encrypted: --insecure" if self.insecure else "not encrypted: on this machine alone"
