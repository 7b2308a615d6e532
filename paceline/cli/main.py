"""The command ``paceline``: parses the arguments and runs the subcommand."""

import sys
from argparse import REMAINDER, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence

from controlplane.protocol import RELEASE
from paceline.cli import jobs, ray, run
from paceline.cli.delegated import DELEGATES, delegate
from paceline.cli.errors import INTERRUPTED, Refusal, refusal_of
from paceline.cli.slurm import command as slurm
from paceline.errors import PacelineError

ABOUT = "Distributed training at the pace of all its machines, not of the slowest."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; an error is printed as one sentence, an interruption without a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] and given[0] in DELEGATES:
            delegate(given[0], given[1:])
        options = read(given)
        sys.exit(options.carry_out(options))
    except PacelineError as error:
        refusal = refusal_of(error)
        sys.stderr.write(f"{refusal}\n")
        sys.exit(refusal.code)
    except Refusal as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(refusal.code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def read(given: Sequence[str]) -> Namespace:
    """Parse the arguments; those after ``--`` belong to another program and are passed unchanged."""
    cut = given.index("--") if "--" in given else len(given)
    options = parser().parse_args(given[:cut])
    options.behind = list(given[cut + 1 :])
    return options


def parser() -> ArgumentParser:
    """Build the parser of all commands; delegated commands have their own help."""
    whole = ArgumentParser(prog="paceline", description=ABOUT, formatter_class=RawDescriptionHelpFormatter)
    whole.add_argument("--version", action="version", version=f"paceline {RELEASE}")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    run.add_command(commands)
    jobs.add_commands(commands)
    ray.add_command(commands)
    slurm.add_command(commands)
    for name, each in DELEGATES.items():
        commands.add_parser(name, help=each.help, add_help=False).add_argument("arguments", nargs=REMAINDER)
    return whole
