"""One agent on one Ray node: an actor that runs ``paceline join`` and restarts it when it ends."""

import os
import sys
from typing import Any

import msgspec
import ray
import ray.util

from paceline.cli.places import environment
from paceline.identity import VARIABLES
from paceline.on_ray.hosting import Hosting
from paceline.on_ray.plan import Plan


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one agent, as reported by its actor."""

    node: str
    host: str
    pid: int
    state: str
    """``starting``, ``connected``, ``ended`` (and restarted soon)."""
    starts: int
    last: str
    """Its last line of output, if it is not connected."""


class HostedAgent:
    """The actor. If Ray restarts it on another node, the agent joins from there under the same name."""

    def __init__(self, plan: Plan, index: int) -> None:
        self._node = ray.get_runtime_context().get_node_id()
        self._host = ray.util.get_node_ip_address()
        join = plan.command(index, host=self._host, node=self._node, variables=os.environ)
        command = [sys.executable, "-m", "paceline.on_ray.bound", str(os.getpid()), *join]
        launched = {name for _, *ranks in VARIABLES for name in ranks}  # set by the launcher that started Ray here
        known = {name: value for name, value in os.environ.items() if name not in launched}
        self._agent = Hosting(command, plan.enrolment, environment(known))

    def sight(self) -> dict[str, Any]:
        """The agent's state."""
        agent = self._agent
        seen = Sight(
            node=self._node,
            host=self._host,
            pid=agent.pid,
            state=agent.state,
            starts=agent.starts,
            last=agent.last,
        )
        found: dict[str, Any] = msgspec.to_builtins(seen)
        return found

    def end(self) -> None:
        """End the agent with its workers; returns when it has left."""
        self._agent.end()
