"""``paceline slurm status`` and ``cancel``: a job in both systems."""

from argparse import Namespace

from controlplane.protocol.text import printable
from paceline.cli import access
from paceline.cli.errors import OK
from paceline.cli.jobs import show_table
from paceline.cli.run import OVER
from paceline.cli.slurm import queue
from paceline.client.sync import Client
from paceline.client.wording import in_one_line
from paceline.errors import Refused

BEGINNING = ("submitted", "starting")
HEADS = ("job", "here", "Slurm", "there", "nodes", "")


def status(options: Namespace) -> int:
    """List each job with its state in Paceline and in Slurm.

    Raises:
        Refusal: if either system does not respond.
    """
    with access.connected(options) as client:
        there = [each for each in queue.entries() if options.number in (None, number_of(client, each))]
        rows = [_row(client, number_of(client, each), each) for each in there if number_of(client, each)]
        if options.number and not rows:
            rows = [_row(client, options.number, None)]
    show_table(HEADS, rows)
    return OK


def cancel(options: Namespace) -> int:
    """End a job in both systems: running ranks stop at the end of an iteration, pending jobs are cancelled.

    Raises:
        Refusal: if either system does not respond.
    """
    with access.connected(options) as client:
        there = [each for each in queue.entries() if number_of(client, each) == options.number]
        try:
            client.stop(options.number)
        except Refused as refusal:
            if refusal.status != OVER:
                raise
        if there:
            queue.cancel_pending([each.id for each in there])
        rows = [_row(client, options.number, each) for each in there] or [_row(client, options.number, None)]
    show_table(HEADS, rows)
    return OK


def number_of(client: Client, entry: queue.Entry) -> int | None:
    """The number of Paceline's job that a Slurm job belongs to; None: it is one of another control plane."""
    return entry.job if entry.page == client.address.page(entry.job) else None


def _row(client: Client, number: int | None, entry: queue.Entry | None) -> tuple[str, ...]:
    assert number is not None
    job = client.job(number)
    detail = printable(job.reason) if job.is_over else in_one_line(job)
    if entry is None:
        cure = "" if job.is_over else f"; Slurm has ended it: paceline slurm cancel {number} ends it here"
        return str(number), job.state, "-", "not in its queue", "-", f"{detail}{cure}"
    if job.launch == "attached" and job.state in BEGINNING and entry.state == "RUNNING":
        detail = "Slurm has started it: its ranks connect when they call paceline.attach()"
    reason = "" if entry.reason in ("None", "") else f"Slurm: {entry.reason}"
    starts_them = entry.state == "PENDING" and not job.is_over  # what the job waits for comes with Slurm's start
    detail = reason if starts_them and reason else "; ".join(filter(None, [reason, detail]))
    return str(number), job.state, str(entry.id), entry.state.lower(), entry.nodes, detail
