"""The test of a machine before it works: what its agent is ordered to measure, and what it answers.

The machine computes, copies memory, and exchanges data with the machines that run servers. Those listen meanwhile, as a
server of a job would: the test has a key of its own, from which both ends derive what they prove themselves with.
"""

from typing import Annotated, Final

from msgspec import Meta

from controlplane.protocol.base import Count32, Name, Port, Positive, Seconds, Text, Value, Word
from controlplane.protocol.orders import Certificate, ServerAddress

TEST_LIMIT_S: Final = 60.0
"""The agent ends a test after this time."""

LISTEN_LIMIT_S: Final = 90.0
"""The far end of a link listens for this long at most."""

MATRIX: Final = 1024
"""Rows and columns of the float32 matrices that a CPU multiplies."""

GPU_MATRIX: Final = 4096
"""Likewise for a GPU."""

COMPUTE_S: Final = 2.0
MEMORY_S: Final = 1.0
LINK_S: Final = 1.0
"""How long each of these is measured for; one round at least."""

LINKS_S: Final = 20.0
"""All links together, with their handshakes, and far ends that do not answer."""

GPUS_S: Final = 15.0
"""All GPUs of a machine together: where there are more, each is measured for less time."""

COPIED_BYTES: Final = 256 * 2**20
"""Memory that is copied, to as much memory: no cache holds it. At most one part in 16 of the machine's."""

LINK_BYTES: Final = 2**20
"""Sent in one exchange with a far end, and as much back."""

MOST_LINK_BYTES: Final = 256 * 2**20
"""Sent to one far end, and as much back: on a fast link before ``LINK_S`` is over. It takes no more."""

MOST_FAR_ENDS: Final = 3

Rate = Annotated[float, Meta(ge=0.0, le=1e18)]
"""Something per second."""


class FarEnd(Value, frozen=True, kw_only=True):
    """A machine that listens for the test; its address includes what proves the tested machine to it."""

    machine: Name
    address: ServerAddress

    def __repr__(self) -> str:
        return f"FarEnd(machine={self.machine!r})"


class MachineTestOrder(Value, frozen=True, kw_only=True, tag="machine-test"):
    """Test the machine now; said only to an agent whose hello has ``tests``."""

    test: Positive
    instance: Name
    """How the tested machine is called in the links' handshakes."""
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
    """Of a few bytes, the median."""
    bytes_per_s: Rate = 0.0
    """Each way, the median."""
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
    """Why there is no result."""


PreflightAnswer = Listening | MachineTested
PreflightOrder = ListenOrder | MachineTestOrder
