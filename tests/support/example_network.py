"""The network of `examples/train.py` as a workload of a native job."""

from examples.train import network
from workers.workloads.data.bundled import bundled
from workers.workloads.network import Network
from workers.workloads.objectives import CROSS_ENTROPY


def factory(*, device: str = "cpu") -> Network:
    """On the same data; a share's batch norm has that share's statistics, as a rank's has under DDP."""
    return Network(network, bundled("digits"), CROSS_ENTROPY, device=device)
