"""``manage.py enroll``: a single-use token with which one machine can join, and the command to run there."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand

from controlplane.api.enrolment import invite
from controlplane.protocol.text import is_plain


class Command(BaseCommand):
    help = "Print a single-use enrolment token, valid for an hour, and the command that joins a machine with it."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        text = "a label that the machine is to carry; repeat it for several"
        parser.add_argument("--label", action="append", type=label, default=[], metavar="K=V", help=text)
        text = "the machine that it is for; one that has joined before and is offline joins again with it"
        parser.add_argument("--name", type=machine_name, help=text)
        parser.add_argument("--json", action="store_true", help="one JSON document instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        invitation = invite(user=None, labels=dict(options["label"]), name=options["name"] or "")
        document = {
            "token": invitation.token,
            "expires_at": invitation.expires_at.isoformat(),
            "labels": dict(options["label"]),
            "command": invitation.command,
        }
        if options["json"]:
            self.stdout.write(json.dumps(document))
        else:
            until = f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC"
            self.stdout.write(
                f"Run this on the machine before {until}:\n\n    {invitation.command}\n\n"
                f"and paste this token, which works once, as a line of its input:\n\n    {invitation.token}\n"
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
