"""The wire between control plane, workers, servers, agents and browsers.

Owns the shapes of messages and specs and the one place where bytes become values. Knows nothing of transports,
time or storage. This is the ground floor: everything may import it, it imports nothing of ours, and the daemons
in ``workers`` import nothing else of ``controlplane``.
"""

SUBPROTOCOL = "paceline.v1"

RELEASE = "0.1.0"
"""Of the control plane and of workers: processes of one job and their control plane must be of the same."""
