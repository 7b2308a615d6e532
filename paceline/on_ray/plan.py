"""The parameters of ``paceline ray up``: number of agents, resources of each, and how they join."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

NAMESPACE: Final = "paceline"
"""Ray's namespace of Paceline's actors."""

SHORT: Final = 12
"""Number of shown digits of a node's id."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One fleet of agents. It is sent to Ray's nodes, and holds secrets: its ``repr`` hides them."""

    name: str
    url: str
    """URL of the control plane, as reachable from the nodes."""
    enrolment: str
    """The token with which all of its agents join."""
    enrolment_id: int | None = None
    """Id of that token, if it was created for this fleet and is revoked with it."""
    agents: int
    most: int
    """Maximum number of agents while jobs wait for slots; equal to ``agents`` if the fleet does not grow."""
    cpus: float = 1.0
    gpus: float = 0.0
    slots: int = 1
    server_slots: int = 1
    labels: dict[str, str] = {}
    """Labels of the token, by which jobs select agents."""
    speeds: list[str] = []
    """The emulated speeds of each agent's slots, in turn; empty: no emulation."""
    insecure: bool = False
    idle_s: float = 60.0
    """How long an agent beyond ``agents`` stays while no job needs it."""
    extra: list[str] = []
    """Additional options of ``paceline join``."""
    runtime_env: dict[str, Any] = {}
    api_token: str = ""
    """The token with which the fleet queries waiting jobs; empty if it does not grow."""
    lasting: bool = False
    """Whether it outlives the command that started it."""

    def __repr__(self) -> str:
        return f"Plan(name={self.name!r}, url={self.url!r}, agents={self.agents}, most={self.most})"

    @property
    def bundle(self) -> dict[str, float]:
        """The resources that Ray reserves for one agent."""
        requested = {"CPU": self.cpus, "GPU": self.gpus}
        return {name: amount for name, amount in requested.items() if amount}

    @property
    def allows_scripts(self) -> bool:
        """Whether its agents start scripts of jobs."""
        return any(option.partition("=")[0] == "--allow-scripts" for option in self.extra)

    @property
    def actor_of_all(self) -> str:
        """The name of the actor that supervises a detached fleet."""
        return f"paceline/{self.name}"

    def agent(self, index: int) -> str:
        """The name of an agent, on any node."""
        return f"{self.name}-{index}"

    def actor(self, index: int) -> str:
        """The name of its actor."""
        return f"paceline/{self.name}/{index}"

    def group(self, index: int) -> str:
        """The name of its placement group: agents below ``agents`` share one."""
        return f"paceline/{self.name}/{'agents' if index < self.agents else index}"

    def bundle_index(self, index: int) -> int:
        """Its bundle in its placement group."""
        return index if index < self.agents else 0

    def state(self, root: Path) -> Path:
        """The folder of its agents' credentials in that of a node: another fleet's agents of the same names do not
        find them.
        """
        return root / f"ray-{hashlib.sha256(self.enrolment.encode()).hexdigest()[:SHORT]}"

    def command(self, index: int, *, host: str, node: str, variables: Mapping[str, str]) -> list[str]:
        """The command with which it joins on a node with these variables; the token is passed on standard input."""
        speed = self.speeds[index % len(self.speeds)] if self.speeds else None
        root = Path(_option(self.extra, "--state-dir") or _state_root(variables))
        checkpoints = variables.get("PACELINE_CHECKPOINT_DIR") or str(root / "checkpoints")  # all fleets read them
        return [
            *(sys.executable, "-m", "workers", "join", self.url, "-", "--name", self.agent(index), "--host", host),
            *("--slots", str(self.slots), "--server-slots", str(self.server_slots)),
            *("--label", f"ray-node={node[:SHORT]}"),
            *(("--emulate", speed) if speed is not None else ()),
            *(("--insecure",) if self.insecure else ()),
            *("--checkpoint-dir", checkpoints),
            *self.extra,
            *("--state-dir", str(self.state(root))),
        ]


def _option(words: Sequence[str], option: str) -> str:
    """The last value of an option, as ``--name VALUE`` or ``--name=VALUE``; empty: it is not there."""
    found = ""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == option:
            found = value if equals else after
    return found


def _state_root(variables: Mapping[str, str]) -> Path:
    """The folder in which ``paceline join`` keeps agents' state by default."""
    if folder := variables.get("PACELINE_STATE_DIR"):
        return Path(folder)
    return Path(variables.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "paceline"


def written(resources: Mapping[str, float]) -> str:
    """``{"CPU": 2.0}`` as ``CPU 2``."""
    shown = {name: amount for name, amount in resources.items() if name in ("CPU", "GPU")}
    return ", ".join(f"{name} {amount:g}" for name, amount in shown.items()) or "nothing"
