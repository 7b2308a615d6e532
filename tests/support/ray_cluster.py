"""A Ray cluster of emulated nodes on loopback, for the interpreter that has Ray: ``ray_cluster.py NODES CPUS [JOBS]``.

Prints one JSON line: the address and the nodes' ids; with JOBS, also where jobs are submitted. Then it does what the
lines of its standard input say, each with a line of its own: ``kill NODE`` ends a raylet by SIGKILL, ``add`` begins
another node. It ends, with all of the cluster, when the input ends.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

MEMORY = 80 * 1024 * 1024
QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
"""A node that is gone is missed within two seconds."""


def main() -> None:
    nodes, cpus, with_jobs = int(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3
    # Ray takes 127.0.0.1 for another address of the machine; some ports are the same in all clusters.
    own = f"127.{1 + os.getpid() // 250 % 250}.{os.getpid() % 250}"
    hosts = (f"{own}.{number}" for number in range(2, 255))
    common: dict[str, Any] = {"object_store_memory": MEMORY}
    head = {"num_cpus": 0, "include_dashboard": with_jobs, "dashboard_host": "127.0.0.1", **common}
    head |= {"node_ip_address": next(hosts)}
    if with_jobs:
        head |= {"dashboard_port": int(sys.argv[3])}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": QUICK})
    known = {}

    states = Path(os.environ["XDG_STATE_HOME"])

    def add() -> str:
        host = next(hosts)
        own_state = {"XDG_STATE_HOME": str(states / host)}
        node = cluster.add_node(
            num_cpus=cpus, include_dashboard=False, node_ip_address=host, env_vars=own_state, **common
        )
        known[node.node_id] = node
        return str(node.node_id)

    added = [add() for _ in range(nodes)]
    tell({"address": cluster.address, "nodes": added, "jobs": f"http://127.0.0.1:{sys.argv[3]}" if with_jobs else ""})
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "add":
            tell({"node": add()})
        elif word == "kill":
            raylet = known[rest[0]].all_processes["raylet"][0].process
            os.kill(raylet.pid, signal.SIGKILL)
            raylet.wait()
            tell({"killed": rest[0]})
    cluster.shutdown()


def tell(document: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(document)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
