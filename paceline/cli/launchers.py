"""Detects the launcher and the number of ranks from a command line."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

MODULES = {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun", "accelerate": "accelerate"}
PER_NODE = ("--nproc-per-node", "--nproc_per_node")
NODES = ("--nnodes",)
RANKS = {
    "accelerate": ("--num_processes", "--num-processes"),
    "horovodrun": ("-np", "--num-proc"),
    "mpiexec": ("-n", "-np"),
    "mpirun": ("-n", "-np"),
    "srun": ("-n", "--ntasks"),
}
"""Options of launchers that set the total number of ranks."""

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""A new store for each restart by torchrun. Otherwise its ranks would read the addresses of the ranks that have ended
(seen with torch 2.13 and gloo: "connectFullMesh failed ... Connection refused", or they wait forever).
"""

NEEDED = {"torchrun": OWN_STORE, "accelerate": OWN_STORE}
"""Variables that a launcher needs to work as documented, by launcher; values that the user has set take precedence."""


RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable in which Ray passes the runtime environment to the entry point of a submitted job; all workers of the
job inherit it.
"""


def for_ray(job_variables: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with which Ray starts workers with the environment ``told`` on any node; empty if no Ray cluster is
    named.
    """
    if not (variables.get(RAY_JOB) or variables.get("RAY_ADDRESS")):
        return {}
    config = json.loads(variables.get(RAY_JOB) or "{}")
    runtime = config.get("runtime_env") or {}
    runtime["env_vars"] = {**(runtime.get("env_vars") or {}), **job_variables, "PACELINE_LAUNCHER": "ray"}
    # A script that passes the same environment itself (`ray.init(runtime_env=...)`) does not conflict.
    return {
        RAY_JOB: json.dumps({"metadata": {}, **config, "runtime_env": runtime}),
        "RAY_OVERRIDE_JOB_RUNTIME_ENV": variables.get("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1"),
    }


def launcher_of(command: Sequence[str]) -> str:
    """The name of the program that starts the ranks: ``torchrun``, ``srun``, ``python`` ..."""
    name = PurePath(command[0]).name
    if re.fullmatch(r"python[\d.]*", name):
        module = command[command.index("-m") + 1] if "-m" in command[1:-1] else ""
        return MODULES.get(module, "python")
    return name


def script_of(command: Sequence[str]) -> str:
    """The name of the script, as the workload's name; otherwise the launcher."""
    scripts = [PurePath(word).stem for word in command[1:] if word.endswith(".py")]
    return scripts[0] if scripts else launcher_of(command)


def world_of(command: Sequence[str]) -> int | None:
    """The number of ranks that the command starts, if its options state it."""
    launcher = launcher_of(command)
    if launcher == "torchrun":
        per_node, nodes = _number(command, PER_NODE), _number(command, NODES)
        return None if per_node is None else per_node * (nodes or 1)
    return _number(command, RANKS[launcher]) if launcher in RANKS else None


def _number(command: Sequence[str], options: Sequence[str]) -> int | None:
    """The number that follows one of the options, or is joined to it; of a range such as 1:4 the upper end."""
    for at, word in enumerate(command):
        name, joined, value = word.partition("=")
        if name in options:
            text = value if joined else (command[at + 1] if at + 1 < len(command) else "")
            last = text.rpartition(":")[2]
            return int(last) if last.isdecimal() and int(last) > 0 else None
    return None
