"""``paceline submit``, ``jobs``, ``job``, ``stop``, ``pause``, ``resume``: jobs of a control plane."""

import sys
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from controlplane.protocol.text import printable
from paceline.cli import access
from paceline.cli.errors import FAILED, OK, Refusal
from paceline.client.sync import Client
from paceline.client.types import Job
from paceline.client.wording import in_one_line

SHOWN = 20
DECISIONS = 5


def add_commands(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add all commands, with their options."""
    submit = _add(commands, "submit", "submit a job", _submit)
    submit.add_argument("spec", metavar="SPEC", help="the job, in YAML or JSON; - reads standard input")
    access.add_team(submit)
    submit.add_argument("--watch", action="store_true", help="follow the job until it is over")
    listed = _add(commands, "jobs", "list jobs, newest first", _jobs)
    listed.add_argument("--state", action="append", default=[], help="only jobs in this state; can be repeated")
    listed.add_argument("--team", metavar="NAME", help="only jobs of this team")
    listed.add_argument("--limit", type=int, default=SHOWN, metavar="N", help="at most N jobs (default: %(default)s)")
    one = _add(commands, "job", "show a job and its last decisions", _job)
    one.add_argument("number", type=int)
    one.add_argument("--watch", action="store_true", help="follow the job until it is over")
    for name, help_text, act in (
        ("stop", "end a job", Client.stop),
        ("pause", "pause a job at its next iteration boundary", Client.pause),
        ("resume", "resume a paused job", Client.resume),
    ):
        _add(commands, name, help_text, _acting(name, act)).add_argument("number", type=int)


def _add(
    commands: "_SubParsersAction[ArgumentParser]", name: str, help_text: str, act: Callable[[Client, Namespace], int]
) -> ArgumentParser:
    parser = commands.add_parser(name, help=help_text)
    access.add_options(parser)
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON document a line instead of text")

    def carry_out(options: Namespace) -> int:
        with access.connected(options) as client:
            return act(client, options)

    parser.set_defaults(carry_out=carry_out)
    return parser


def _submit(client: Client, options: Namespace) -> int:
    job = client.submit(read_spec(options.spec), team=options.team)
    if options.watch:
        return _watch(client, job, options)
    _print(options, job, f"job {job.id} ({printable(job.name)}) is submitted: {client.address.page(job.id)}")
    return OK


def _jobs(client: Client, options: Namespace) -> int:
    found = client.jobs(state=options.state, team=options.team, limit=options.limit)
    if options.as_json:
        for job in found:
            _print(options, job, "")
        return OK
    rows = [(str(job.id), printable(job.name), job.state, in_one_line(job)) for job in found]
    show_table(("job", "name", "state", ""), rows)
    return OK


def _job(client: Client, options: Namespace) -> int:
    job = client.job(options.number)
    if options.watch:
        return _watch(client, job, options)
    if options.as_json:
        _print(options, job, "")
        return OK
    policies = ", ".join(f"{question} {name}" for question, name in job.policies.items())
    _write(
        f"job {job.id} ({printable(job.name)}) {job.state}: {printable(job.reason) or in_one_line(job)}",
        f"  {job.workers} x {job.batch_size} samples, {policies}",
        f"  {client.address.page(job.id)}",
        *(
            f"  {each.at:%H:%M:%S} {each.kind}: {printable(each.reason)}"
            for each in client.decisions(job.id, limit=DECISIONS)
        ),
    )
    return OK


def _acting(name: str, act: Callable[[Client, int], Job]) -> Callable[[Client, Namespace], int]:
    def carry_out(client: Client, options: Namespace) -> int:
        job = act(client, options.number)
        _print(options, job, f"job {job.id} ({printable(job.name)}): {name} requested; its state is {job.state}")
        return OK

    return carry_out


def _watch(client: Client, job: Job, options: Namespace) -> int:
    for job in client.watch(job.id):  # noqa: B020 - the last one is what is judged
        text = f"job {job.id} {job.state}: {printable(job.reason) if job.is_over and job.reason else in_one_line(job)}"
        _print(options, job, text)
    return OK if job.succeeded else FAILED


def read_spec(spec: str) -> str:
    """Return the text of a spec; ``-`` reads standard input.

    Raises:
        Refusal: if it cannot be read.
    """
    try:
        return sys.stdin.read() if spec == "-" else Path(spec).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{spec}: cannot be read ({error})") from None


def _print(options: Namespace, job: Job, text: str) -> None:
    _write(msgspec.json.encode(job).decode() if options.as_json else text)


def show_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table: columns below their headings."""
    _write(*_table(heads, rows))


def _write(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in (heads, *rows)) for at in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (heads, *rows)
    ]
