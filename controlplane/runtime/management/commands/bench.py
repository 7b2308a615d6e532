"""``manage.py bench NAME``: measures on this machine, prints figures and ratios, and fails if a target is missed."""

import sys
from importlib import import_module
from importlib.util import find_spec

from django.core.management.base import BaseCommand

PACKAGE = "benchmarks"
MISSING = f"bench: the package {PACKAGE} is missing; it is part of a checkout and of the control plane's image\n"


class Command(BaseCommand):
    """Hands everything behind its name to ``benchmarks.command``."""

    help = (
        "Measure the control plane, the data plane or the simulator on this machine; bench --help lists the benchmarks."
    )
    requires_system_checks = []

    def run_from_argv(self, argv: list[str]) -> None:
        """Exit with the benchmark's code."""
        if find_spec(PACKAGE) is None:
            sys.stderr.write(MISSING)
            sys.exit(2)
        sys.exit(import_module(f"{PACKAGE}.command").main(argv[2:]))
