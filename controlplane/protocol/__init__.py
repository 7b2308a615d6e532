"""The wire between control plane, workers, servers, agents and browsers.

Owns the shapes of messages and specs and the one place where bytes become values. Knows nothing of transports,
time or storage. This is the ground floor: everything may import it, it imports nothing of Paceline's, and the daemons
in ``workers`` import nothing else of ``controlplane``.
"""

SUBPROTOCOL = "paceline.v1"

RELEASE = "0.1.0"
"""Of the control plane and of workers. The third number rises where messages stay as they are, or gain fields that may
be missing (``tests/protocol/test_series.py``)."""


def understands(release: str) -> bool:
    """Whether processes of that release and of this one can work on one job: the first two numbers are equal."""
    return release in ("", RELEASE) or release.split(".")[:2] == RELEASE.split(".")[:2]
