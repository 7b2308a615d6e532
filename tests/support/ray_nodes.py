"""Where Ray's autoscaler gets nodes in a test: raylets on this machine, at loopback addresses of their own."""

import itertools
import os
from pathlib import Path
from typing import Any

import ray.util
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class LoopbackNodes(FakeMultiNodeProvider):
    """Ray's own provider for tests would have them listen where others reach this machine."""

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        head = provider_config["gcs_address"].rpartition(":")[0]
        hosts = (f"{head.rpartition('.')[0]}.{number}" for number in itertools.cycle(range(3, 255)))
        ray.util.get_node_ip_address = lambda: next(hosts)
        self._states = Path(os.environ["XDG_STATE_HOME"])

    def _next_hex_node_id(self) -> str:
        """The id of the next node, which is begun under the same lock and inherits this process's variables."""
        node = str(super()._next_hex_node_id())
        os.environ["XDG_STATE_HOME"] = str(self._states / node)
        return node
