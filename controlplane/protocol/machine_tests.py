"""Messages of a machine test: what its agent is ordered to measure, and the results.

The machine computes, copies memory, and exchanges data with machines that run servers. Those listen meanwhile as a
server of a job would: the test has its own key, from which both ends derive their credentials.
"""

from typing import Annotated, Final

from msgspec import Meta

from controlplane.protocol.base import Count32, Name, Port, Positive, Seconds, Text, Value, Word
from controlplane.protocol.orders import Certificate, ServerAddress

TEST_LIMIT_S: Final = 60.0
"""Time limit of a test, enforced by the agent."""

LISTEN_LIMIT_S: Final = 90.0
"""Time limit for the far end of a link."""

MATRIX: Final = 1024
"""Rows and columns of the float32 matrices that a CPU multiplies."""

GPU_MATRIX: Final = 4096
"""Likewise for a GPU."""

COMPUTE_S: Final = 2.0
MEMORY_S: Final = 1.0
LINK_S: Final = 1.0
"""How long each of these is measured; at least one round."""

LINKS_S: Final = 20.0
"""Time limit of all links together, including handshakes and unresponsive far ends."""

GPUS_S: Final = 15.0
"""Time limit of all GPUs of a machine together: with several, each is measured for less time."""

COPIED_BYTES: Final = 256 * 2**20
"""Size of a memory copy: larger than any cache, but at most 1/16 of the machine's memory."""

LINK_BYTES: Final = 2**20
"""Bytes per exchange with a far end, in each direction."""

MOST_LINK_BYTES: Final = 256 * 2**20
"""Maximum bytes per far end in each direction, which fast links reach before ``LINK_S``."""

MOST_FAR_ENDS: Final = 3

Rate = Annotated[float, Meta(ge=0.0, le=1e18)]
"""Something per second."""


class FarEnd(Value, frozen=True, kw_only=True):
    """A machine that listens for the test; its address includes the tested machine's credential."""

    machine: Name
    address: ServerAddress

    def __repr__(self) -> str:
        return f"FarEnd(machine={self.machine!r})"


class MachineTestOrder(Value, frozen=True, kw_only=True, tag="machine-test"):
    """Test the machine now; sent only to an agent whose hello has ``tests``."""

    test: Positive
    instance: Name
    """The tested machine's name in the links' handshakes."""
    key: Word
    """As a hex string."""
    certificate: Certificate = b""
    authority: Certificate = b""
    far_ends: Annotated[list[FarEnd], Meta(max_length=MOST_FAR_ENDS)] = []

    def __repr__(self) -> str:
        return f"MachineTestOrder(test={self.test})"


class ListenOrder(Value, frozen=True, kw_only=True, tag="listen"):
    """Be the far end of a link of another machine's test, until that machine is done."""

    test: Positive
    index: Count32
    instance: Name
    key: Word
    certificate: Certificate = b""
    authority: Certificate = b""

    def __repr__(self) -> str:
        return f"ListenOrder(test={self.test}, index={self.index})"


class Listening(Value, frozen=True, kw_only=True, tag="listening"):
    """Where the agent listens for the test, or why it does not."""

    number: Positive
    test: Positive
    port: Port | None = None
    failure: Text = ""


class MeasuredLink(Value, frozen=True, kw_only=True):
    """The link to one far end."""

    machine: Name
    round_trip_s: Seconds = 0.0
    """Round-trip time of a few bytes, the median."""
    bytes_per_s: Rate = 0.0
    """In each direction, the median."""
    failure: Text = ""
    """Why it was not measured; empty: it was."""


class MachineTested(Value, frozen=True, kw_only=True, tag="machine-tested"):
    """The result of a test. A number that does not apply is 0; rates are medians over the rounds."""

    number: Positive
    test: Positive
    cpu_flops: Rate = 0.0
    """Floating-point operations per second of all CPUs that the machine may use."""
    memory_bytes_per_s: Rate = 0.0
    """Read and written."""
    gpus: Count32 = 0
    gpu_flops: Rate = 0.0
    """Of the slowest GPU."""
    gpu_memory_bytes_per_s: Rate = 0.0
    """Likewise."""
    links: Annotated[list[MeasuredLink], Meta(max_length=MOST_FAR_ENDS)] = []
    seconds: Seconds = 0.0
    failure: Text = ""
    """Why there is no result; empty: there is one."""


PreflightAnswer = Listening | MachineTested
PreflightOrder = ListenOrder | MachineTestOrder
