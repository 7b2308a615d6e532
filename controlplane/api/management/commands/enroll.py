"""``manage.py enroll``: prints an enrolment token for one or more machines, and the command to run there."""

import json
import re
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from controlplane.api.enrolment import invite
from controlplane.fleet.services import MOST_USES
from controlplane.protocol.text import is_plain

UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
LONGEST_S: Final = 366 * 86_400


class Command(BaseCommand):
    help = "Print an enrolment token and the command with which machines join."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        text = "label of the machine; can be repeated"
        parser.add_argument("--label", action="append", type=label, default=[], metavar="K=V", help=text)
        text = "name of the machine; an offline machine that joined before can join again with it"
        parser.add_argument("--name", type=machine_name, help=text)
        text = "number of machines that can join with it (default: 1)"
        parser.add_argument("--uses", type=uses, default=1, metavar="N", help=text)
        text = "lifetime of the token, such as 30m, 2h, 7d (default: 1h)"
        parser.add_argument("--expires", type=seconds, default=3_600.0, metavar="TIME", help=text)
        text = "remove machines that joined with it after this time offline, such as 1h (default: never)"
        parser.add_argument("--remove-after", type=seconds, metavar="TIME", help=text)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        name, uses = options["name"] or "", options["uses"]
        if name and uses > 1:
            raise CommandError(f"--name {name} is for one machine, but --uses is {uses}: omit one of them")
        invitation = invite(
            user=None,
            labels=dict(options["label"]),
            name=name,
            uses=uses,
            remove_after_s=options["remove_after"],
            lifetime_s=options["expires"],
        )
        document = {
            "id": invitation.id,
            "uses": uses,
            "token": invitation.token,
            "expires_at": invitation.expires_at.isoformat(),
            "labels": dict(options["label"]),
            "command": invitation.command,
        }
        if options["json"]:
            self.stdout.write(json.dumps(document))
        else:
            until = f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC"
            where, works = ("the machine", "once") if uses == 1 else (f"up to {uses:,} machines", f"{uses:,} times")
            self.stdout.write(
                f"Run this on {where} before {until}:\n\n    {invitation.command}\n\n"
                f"and paste this token, valid {works}, into its input:\n\n    {invitation.token}\n"
            )


def machine_name(text: str) -> str:
    """The name, if it can be one."""
    if not 0 < len(text) <= 100 or not is_plain(text):
        raise ArgumentTypeError(f"found {text!r}, expected 1 to 100 characters without control characters")
    return text


def label(text: str) -> tuple[str, str]:
    """``k=v`` as a pair."""
    key, separator, value = text.partition("=")
    if not key or not separator or not is_plain(text):
        raise ArgumentTypeError(f"found {text!r}, expected key=value, such as gpu=a100")
    return key, value


def uses(text: str) -> int:
    """A number of machines."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_USES:
        raise ArgumentTypeError(f"found {text!r}, expected an integer from 1 to {MOST_USES:,}")
    return int(text)


def seconds(text: str) -> float:
    """``2h`` in seconds."""
    match = re.fullmatch(r"(\d{1,9})([smhdw])", text)
    found = int(match[1]) * UNIT_S[match[2]] if match else 0
    if not 1 <= found <= LONGEST_S:
        raise ArgumentTypeError(f"found {text!r}, expected a number with s, m, h, d or w, such as 2h, at most 366d")
    return float(found)
