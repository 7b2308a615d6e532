"""``paceline ray up``, ``status``, ``down``: agents on the nodes of a Ray cluster."""

import json
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from paceline.cli import access
from paceline.cli.delegated import RAY
from paceline.cli.errors import Refusal
from paceline.cli.run import pair

UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
MOST_AGENTS: Final = 1_000
NAME: Final = "ray"

EXAMPLES = """\
  paceline ray up --agents 4 --cpus 2 --label pool=ray --detach
  paceline ray up --agents 2 --max-agents 8 --gpus 1 --detach -- --device cuda --insecure
  paceline ray status
  paceline ray down

Options after -- are passed to `paceline join` of every agent.
"""


def add_command(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add ``ray`` and its subcommands."""
    whole = commands.add_parser("ray", help="run agents on the nodes of a Ray cluster")
    parts = whole.add_subparsers(title="commands", metavar="COMMAND", dest="part", required=True)
    up = _part(parts, "up", "start agents on the cluster's nodes, and replace those whose node fails")
    up.epilog = EXAMPLES
    access.add_options(up)
    up.add_argument("--agents", type=_count, default=1, metavar="N", help="agents (default: %(default)s)")
    text = "maximum number of agents while jobs wait for slots (default: as --agents)"
    up.add_argument("--max-agents", type=_count, metavar="N", help=text)
    text = "remove an agent beyond --agents after it was idle this long (default: 60s)"
    up.add_argument("--idle", type=seconds, default=60.0, metavar="TIME", help=text)
    up.add_argument("--cpus", type=_amount, default=1.0, metavar="N", help="CPUs per agent (default: 1)")
    up.add_argument("--gpus", type=_amount, default=0.0, metavar="N", help="GPUs per agent (default: 0)")
    text = "workers of an agent at a time (default: 1, or one for each GPU)"
    up.add_argument("--slots", type=_count, metavar="N", help=text)
    text = "parameter servers of an agent at a time (default: 1)"
    up.add_argument("--server-slots", type=_count_or_none, default=1, metavar="N", help=text)
    text = "labels of the agents; jobs select agents by label"
    up.add_argument("--label", type=pair, action="append", default=[], metavar="KEY=VALUE", help=text)
    text = "a reusable enrolment token (default: create one, which requires an admin's API token)"
    up.add_argument("--enrolment-token", type=Path, metavar="FILE", help=text)
    text = "lifetime of the created enrolment token, such as 12h (default: 30d, the longest)"
    up.add_argument("--expires", type=seconds, default=30 * 86_400.0, metavar="TIME", help=text)
    text = "remove an agent from the control plane after this time offline (default: 10m)"
    up.add_argument("--remove-after", type=seconds, default=600.0, metavar="TIME", help=text)
    text = "emulated speeds, assigned to agents in turn: 1000 (samples/s), x3 (three times slower)"
    up.add_argument("--emulate", type=_list, default=[], metavar="SPEED,...", help=text)
    up.add_argument("--insecure", action="store_true", help="allow unencrypted connections between the nodes")
    text = 'Ray\'s runtime environment of the agents, such as {"pip": ["/shared/WHEEL[agent]"]}'
    up.add_argument("--runtime-env", type=_mapping, default={}, metavar="JSON", help=text)
    text = "how long to wait for resources and for the agents to join (default: 2m)"
    up.add_argument("--wait", type=seconds, default=120.0, metavar="TIME", help=text)
    up.add_argument("--detach", action="store_true", help="return once the agents have joined, and leave them running")
    _part(parts, "status", "show the agents of a detached fleet").add_argument(
        "--json", action="store_true", dest="as_json", help="print JSON instead of text"
    )
    access.add_options(_part(parts, "down", "stop a detached fleet"))


def _part(parts: "_SubParsersAction[ArgumentParser]", name: str, help_text: str) -> ArgumentParser:
    parser = parts.add_parser(name, help=help_text, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="of the cluster (default: RAY_ADDRESS, else the one of this machine)")
    parser.add_argument("--name", type=_name, default=NAME, help="of the fleet (default: %(default)s)")
    parser.set_defaults(carry_out=_carrying_out(name))
    return parser


def _carrying_out(name: str) -> Callable[[Namespace], int]:
    def carry_out(options: Namespace) -> int:
        if not RAY.is_installed:
            raise Refusal(
                f"paceline ray: found no Ray in this environment ({sys.prefix}), expected ray 2.55 or newer; "
                "install it: pip install 'paceline[ray]'"
            )
        from paceline.on_ray import commands

        acts: dict[str, Callable[[Namespace], int]] = {
            "up": commands.up,
            "status": commands.status,
            "down": commands.down,
        }
        return acts[name](options)

    return carry_out


def seconds(text: str) -> float:
    """``2h`` in seconds."""
    match = re.fullmatch(r"(\d{1,7})([smhd])", text)
    found = int(match[1]) * UNIT_S[match[2]] if match else 0
    if not 1 <= found <= 30 * 86_400:
        raise ArgumentTypeError(f"found {text!r}, expected a number and s, m, h or d, such as 30s or 2h, up to 30d")
    return float(found)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_AGENTS:
        raise ArgumentTypeError(f"found {text!r}, expected a whole number from 1 to {MOST_AGENTS:,}")
    return int(text)


def _count_or_none(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _amount(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 10_000:
        raise ArgumentTypeError(f"found {text!r}, expected a number from 0 to 10,000")
    return found


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", text):
        raise ArgumentTypeError(f"found {text!r}, expected up to 40 lower-case letters, digits and dashes")
    return text


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _mapping(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ArgumentTypeError(f"found {text!r}, expected a JSON object")
    return found
