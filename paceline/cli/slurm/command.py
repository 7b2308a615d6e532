"""``paceline slurm`` and its subcommands, with their options."""

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter, _SubParsersAction
from pathlib import Path

from paceline.cli import access
from paceline.cli.slurm import follow, rank, sides, submit, watch

EXAMPLES = """\
  paceline slurm submit --nodes 4 --gpus-per-node 8 -- torchrun --nproc-per-node 8 train.py
  paceline slurm submit --nodes 4 --ntasks-per-node 2 --time 24:00:00 --requeue -- python train.py
  paceline slurm submit job.yaml --nodes 4                     # launch: native: agents run its workers
"""


FOLDER = Path("paceline-slurm")
"""For scripts, tokens and output."""


def add_command(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add ``slurm`` and its subcommands."""
    whole = commands.add_parser("slurm", help="submit, show or cancel a job that runs under Slurm")
    parts = whole.add_subparsers(metavar="PART", dest="part", required=True)
    _add_submit(parts)
    for name, help_text, act in (
        ("status", "show jobs with their Slurm state", sides.status),
        ("cancel", "stop a job and cancel its Slurm job", sides.cancel),
    ):
        parser = parts.add_parser(name, help=help_text)
        access.add_options(parser)
        parser.add_argument("number", type=int, nargs="?" if name == "status" else None, help="of the job, here")
        parser.set_defaults(carry_out=act)
    watching = parts.add_parser(
        "watch", help="end jobs here that ended in Slurm's queue, and in the queue that ended here"
    )
    access.add_options(watching)
    watching.add_argument("--folder", type=Path, default=FOLDER, help="as for submit (default: paceline-slurm)")
    watching.add_argument(
        "--every", type=positive, default=int(watch.LOOK_S), metavar="SECONDS", help="between looks (default: 30)"
    )
    watching.set_defaults(carry_out=watch.carry_out)
    following = parts.add_parser("follow", help="within the batch script: run srun, and report its exit status")
    following.add_argument("--url", default=None)
    following.add_argument("--token-file", type=Path, required=True, help="the job's own token")
    following.add_argument("--requeue", action="store_true", help="requeue the Slurm job at its time limit")
    following.add_argument("--agents", action="store_true", help="start agents instead of ranks")
    following.set_defaults(carry_out=follow.carry_out)
    parts.add_parser("rank", help="within srun: run the command of one task").set_defaults(carry_out=rank.carry_out)


def _add_submit(parts: "_SubParsersAction[ArgumentParser]") -> None:
    parser = parts.add_parser("submit", help="submit a job, and the batch script that runs it to Slurm")
    parser.usage = "paceline slurm submit [SPEC] [options] [-- COMMAND ...]"
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    access.add_options(parser)
    parser.add_argument(
        "spec", metavar="SPEC", nargs="?", help="the job, in YAML or JSON; without it, an attached job of the command"
    )
    access.add_team(parser)
    parser.add_argument("--nodes", type=positive, default=1, metavar="N", help="nodes of the cluster (default: 1)")
    parser.add_argument(
        "--ntasks-per-node", type=positive, default=1, metavar="N", help="ranks, agents or torchruns of each node"
    )
    parser.add_argument("--cpus-per-task", type=positive, metavar="N")
    parser.add_argument("--gpus-per-node", metavar="N")
    parser.add_argument("--time", metavar="LIMIT", help="such as 30 (minutes) or 24:00:00")
    parser.add_argument("--partition", metavar="NAME")
    parser.add_argument("--account", metavar="NAME")
    parser.add_argument(
        "--sbatch", action="append", default=[], metavar="OPTION", help="another option: --sbatch=--constraint=a100"
    )
    parser.add_argument(
        "--requeue", action="store_true", help="requeue after the time limit, a preemption or a node failure"
    )
    parser.add_argument(
        "--notice",
        type=positive,
        default=120,
        metavar="SECONDS",
        help="seconds before the limit at which to save (default: 120)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        help="folder for script, tokens and output; shared by all nodes",
    )
    parser.add_argument(
        "--no-watch",
        action="store_false",
        dest="watch",
        help="start no process that notices the end of the job in Slurm's queue (paceline slurm watch)",
    )
    parser.add_argument("--insecure", action="store_true", help="allow unencrypted connections: the network is private")
    parser.add_argument(
        "--agent", action="append", default=[], metavar="OPTION", help="option for each agent: --agent=--allow-code"
    )
    parser.set_defaults(carry_out=submit.carry_out)


def positive(text: str) -> int:
    """Parse a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"found {text!r}, expected a whole number from 1 on")
    return int(text)
