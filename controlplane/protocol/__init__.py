"""Message types and specs: the wire protocol between control plane, workers, servers, agents and browsers.

Defines the types of messages and specs, and how bytes are decoded. Independent of transports, time and storage. The
lowest layer: every package may import it; it imports no other package of Paceline, and ``workers`` imports nothing else
of ``controlplane``.
"""

SUBPROTOCOL = "paceline.v1"

RELEASE = "0.1.0"
"""Release of the control plane and of workers. Between releases that differ only in the third number, messages are
equal or gain optional fields (``tests/protocol/test_series.py``).
"""


def understands(release: str) -> bool:
    """Whether processes of that release and of this one can work on one job: the first two numbers are equal."""
    return release in ("", RELEASE) or release.split(".")[:2] == RELEASE.split(".")[:2]
