"""``paceline run -- COMMAND``: submits a job and runs a command whose ranks attach to it."""

import os
import shlex
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from paceline import variables
from paceline.cli import access, local
from paceline.cli.errors import Refusal, refusal_of
from paceline.cli.gain import METRICS, gained
from paceline.cli.launchers import NEEDED, for_ray, launcher_of, script_of, world_of
from paceline.cli.lease import LEASE_S, renewed
from paceline.cli.places import environment
from paceline.cli.processes import check_found, ending, run
from paceline.client.columns import Metrics
from paceline.client.retries import Patience
from paceline.client.sync import Client
from paceline.client.types import Job
from paceline.errors import PacelineError, Refused

BATCHING, EVEN = "lb-bsp-linear", "uniform"
POSSIBLE = ("lb-bsp-cpu", "lb-bsp-gpu", "lb-bsp-linear", "uniform")
"""Batching policies that an attached script can use, for the help; the control plane checks the choice."""

UNTOLD_BATCH = 32
"""Batch size shown for a rank until its hello reports one."""

TRACKERS = {
    "tensorboard": (variables.TENSORBOARD, "FOLDER", "forward each iteration to TensorBoard's event files there"),
    "mlflow": (variables.MLFLOW, "URI", "forward each iteration to a run of this MLflow server or folder"),
    "wandb": (variables.WANDB, "PROJECT", "forward each iteration to a run of this Weights & Biases project"),
}
"""Variable, metavariable and help by option; read by ``paceline.adapters.trackers``."""

OVER = 409
"""The job is over: it was stopped, or all of its ranks have ended."""

HISTORY_S = 15.0
LOOK_S = 0.5
END = Patience(tries=8)
"""How long to retry the report of the job's end, for example while the control plane restarts."""

EXAMPLES = """\
  paceline run -- torchrun --nproc-per-node 4 train.py
  paceline run --local --batching lb-bsp-gpu -- accelerate launch --num_processes 2 train.py
  paceline run --url https://paceline.example.org -- srun -n 16 python train.py

The script calls `pacer = paceline.attach()`. The exit code is the command's.
"""


def add_command(commands: "_SubParsersAction[ArgumentParser]") -> None:
    """Add ``run`` and its options."""
    parser = commands.add_parser("run", help="run a training command as a job with batch sizes balanced by speed")
    parser.usage = "paceline run [options] -- COMMAND ..."
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.set_defaults(carry_out=carry_out)
    access.add_options(parser)
    parser.add_argument(
        "--local", action="store_true", help="use this user's local control plane; start it if it is not running"
    )
    parser.add_argument(
        "--anyway", action="store_true", help="run the command even if the control plane is unreachable"
    )
    parser.add_argument("--name", help="name of the job (default: the script's)")
    parser.add_argument(
        "--batching",
        type=choice,
        metavar="NAME[,KEY=VALUE...]",
        help=f"batching policy: {', '.join(POSSIBLE)} (default: {BATCHING}; with --policy {EVEN})",
    )
    parser.add_argument(
        "--policy",
        choices=["auto", "suggest"],
        help="simulate other batching policies on what the job measures, and switch to the best, or only propose to",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of ranks (default: read from the command, corrected when ranks connect)",
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="batch size of each rank (default: the script's data loader's)"
    )
    parser.add_argument("--multiple", type=int, metavar="N", default=1, help="batch sizes are multiples of N")
    parser.add_argument("--least", type=int, metavar="N", help="smallest batch size of a rank")
    parser.add_argument("--most", type=int, metavar="N", help="largest batch size of a rank")
    parser.add_argument(
        "--fill",
        type=float,
        metavar="TIMES",
        help="let the global batch grow as memory allows, to at most so many times the script's",
    )
    parser.add_argument(
        "--learning-rate",
        choices=["linear", "square-root"],
        help="with --fill: how the learning rate follows the global batch",
    )
    parser.add_argument(
        "--guard",
        choices=["revert", "suggest"],
        help="with --fill: judge each larger global batch by the loss, and go back where it harms, or only say so",
    )
    parser.add_argument("--label", type=pair, action="append", default=[], metavar="KEY=VALUE", help="of the job")
    parser.add_argument("--priority", type=int, metavar="N")
    access.add_team(parser)
    for name, (_, metavar, text) in TRACKERS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
    parser.add_argument("--seed", type=int, metavar="N", help="random seed of the policies")
    parser.add_argument(
        "--wait", type=float, metavar="SECONDS", help="how long the job waits for ranks (default: 3600)"
    )
    parser.add_argument(
        "--lease",
        type=float,
        metavar="SECONDS",
        default=LEASE_S,
        help="fail the job after this time without ranks and without this command (default: 300)",
    )


def carry_out(options: Namespace) -> int:
    """Submit the job, run the command, report its end and print the gain; return the command's exit code.

    Raises:
        Refusal: if there is no such command, the job is refused, or no control plane answers.
    """
    command = options.behind
    if not command:
        raise Refusal(
            "paceline run: found no command, expected one after --, such as: paceline run -- torchrun train.py"
        )
    check_found(command, environment(os.environ))
    with ExitStack() as stack:
        try:
            found = (
                stack.enter_context(local.control_plane(os.environ))
                if options.local
                else access.find(options, os.environ)
            )
            client = stack.enter_context(access.opened(found))
            job = client.submit(spec(options, command), team=options.team)
            token = job.token or client.new_job_token(job.id).token
        except (PacelineError, Refusal) as error:
            refusal = refusal_of(error) if isinstance(error, PacelineError) else error
            if not options.anyway:
                raise refusal from None
            say(f"{refusal}\nThe command runs anyway, with equal shares.")
            return run(command, environment(os.environ))
        say(f"job {job.id} ({job.name}): {found.address.page(job.id)}")
        if found.login_link:
            say(f"one-time login link, valid for five minutes: {found.login_link}")
        launcher = launcher_of(command)
        job_variables = {
            **{name: value for name, value in NEEDED.get(launcher, {}).items() if name not in os.environ},
            variables.URL: found.address.url,
            variables.JOB: str(job.id),
            variables.TOKEN: token,
            variables.LAUNCHER: launcher,
            **{variable: where for name, (variable, _, _) in TRACKERS.items() if (where := getattr(options, name))},
        }
        code = _run(client, job, command, {**job_variables, **for_ray(job_variables, os.environ)}, options.lease)
        say(_gain(client, job))
        return code


def spec(options: Namespace, command: list[str]) -> dict[str, Any]:
    """The spec of the job."""
    multiple = options.multiple
    document: dict[str, Any] = {
        "name": options.name or script_of(command),
        "launch": "attached",
        "workers": options.workers or world_of(command) or 1,
        "batch_size": options.batch_size or -(-UNTOLD_BATCH // max(multiple, 1)) * multiple,
        "sample_multiple": multiple,
        "lease_s": options.lease,
        "synchronization": {"batching": options.batching or choice(EVEN if options.policy else BATCHING)},
    }
    limits = {"minimum": options.least, "maximum": options.most}
    limits = {name: value for name, value in limits.items() if value is not None}
    more = {
        "policy": options.policy,
        "guard": options.guard,
        "priority": options.priority,
        "seed": options.seed,
        "wait_s": options.wait,
    }
    document |= {name: value for name, value in more.items() if value is not None}
    document |= {"limits": limits} if limits else {}
    document |= {"labels": dict(options.label)} if options.label else {}
    fill = {"limit": options.fill, "learning_rate": options.learning_rate}
    fill = {name: value for name, value in fill.items() if value is not None}
    document |= {"fill": fill} if fill else {}
    return document


def choice(text: str) -> dict[str, Any]:
    """Convert ``lb-bsp-cpu,predictor=ema`` to the form of a spec."""
    name, *rest = text.split(",")
    return {"name": name, **{key: _value(value) for key, value in map(pair, rest)}}


def pair(text: str) -> tuple[str, str]:
    """Split ``key=value``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ArgumentTypeError(f"found {text!r}, expected key=value")
    return key, value


def say(sentence: str) -> None:
    """Print to standard error, separate from the command's own output."""
    sys.stderr.write(f"paceline: {sentence}\n")
    sys.stderr.flush()


def _run(client: Client, job: Job, command: list[str], job_variables: Mapping[str, str], lease_s: float) -> int:
    """Run the command and report its exit code to the job; return it."""
    try:
        with renewed(client, job.id, lease_s):
            code = run(command, {**environment(os.environ), **job_variables})
    except Refusal as refusal:
        _finish(client, job, refusal.code, str(refusal))
        raise
    reason = f"{shlex.join(command)[:200]} ended with {code}" + (f", {word}" if (word := ending(code)) else "")
    _finish(client, job, code, reason if code else "")
    return code


def _finish(client: Client, job: Job, code: int, reason: str) -> None:
    try:
        with Client(client.url, client.address.token, patience=END) as patient:
            patient.finish(job.id, exit_code=code, reason=reason)
    except PacelineError as error:
        if isinstance(error, Refused) and error.status == OVER:
            return
        say(f"job {job.id}: its end could not be reported ({error}); it ends when its wait for ranks times out")


def _gain(client: Client, job: Job) -> str:
    """The gain, once all reports are stored."""
    deadline = time.monotonic() + HISTORY_S
    try:
        metrics = client.metrics(job.id, METRICS)
        while time.monotonic() < deadline:
            known, over = _points(metrics), client.job(job.id).is_over
            time.sleep(LOOK_S)
            metrics = client.metrics(job.id, METRICS)
            if over and known == _points(metrics):
                break
    except PacelineError as error:
        return f"the gain is unknown ({error})"
    return gained(metrics, client.address.page(job.id))


def _points(metrics: Metrics) -> int:
    return sum(len(one.iterations) for one in metrics.series)


def _value(text: str) -> Any:
    """A number, a boolean or a string."""
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
