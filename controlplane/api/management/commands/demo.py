"""``manage.py demo``: one job under BSP and under LB-BSP on uneven machines, evaluated, on its own control plane."""

import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import BaseCommand
from rich.console import Console

from controlplane.api.demo.attached import BATCHING, PER_EPOCH, Scripts, scripts_table
from controlplane.api.demo.display import Display, chosen_table, closing_table, verdict_line
from controlplane.api.demo.driving import agent_is_online, drive
from controlplane.api.demo.record import Record
from controlplane.api.demo.scenarios import BASELINE, CHALLENGER, PLAIN, SCENARIOS, Run, Scenario, chosen_run
from controlplane.api.demo.verdict import (
    Bar,
    Summary,
    judge,
    judge_chosen,
    speed_up,
    summarise,
    summarise_by_clock,
    what_compares,
)
from controlplane.policies import registry
from controlplane.runtime.embedded.control_plane import INSECURE, ControlPlane, start_control_plane
from controlplane.runtime.embedded.errors import CannotStart, Interrupted
from controlplane.runtime.embedded.ground import check_exposure, free_port
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.joining import Access, let_in, start_agent
from controlplane.runtime.embedded.supervisor import Supervisor
from paceline import Client, Refused, Unreachable
from paceline.cli.places import MANAGE

MACHINES = "demo-machines"
JOIN_S = 60.0
INTERRUPTED = 130
WIDTH = 110
"""Columns where there is no terminal to query."""

PRIVATE = {"REDIS_URL": "", "DATABASE_URL": "", "SECRET_KEY": "", "PACELINE_STATIC_ROOT": ""}
"""Settings of this machine's own control plane that the demo must ignore."""


class Command(BaseCommand):
    help = (
        "Train on emulated machines of 1000, 1000, 500 and 250 samples/s, first under BSP, then under LB-BSP, and "
        "compare. Exit code 0: every check passed; 1: one failed, or something could not be started; 130: interrupted."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = "; ".join(f"{scenario.name}: {scenario.summary}" for scenario in SCENARIOS.values())
        parser.add_argument("--scenario", choices=SCENARIOS, default="digits", help=names)
        for question in PLAIN:
            named = (
                f"{question} of the second run, with its defaults; with any of the four, it is compared with plain BSP"
            )
            parser.add_argument(f"--{question}", choices=registry.names(question), help=named)
        parser.add_argument(
            "--attached",
            action="store_true",
            help="compare an ordinary DDP script under torchrun with and without Paceline instead",
        )
        parser.add_argument("--iterations", type=enough, help="iterations of each run (default: the scenario's)")
        parser.add_argument(
            "--exit",
            action="store_true",
            dest="exits",
            help="exit after printing the results instead of waiting for Ctrl-C",
        )
        parser.add_argument(
            "--keep", type=Path, metavar="FOLDER", help="keep database, models and logs in this new folder"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print the result as one line of JSON")
        parser.add_argument("--host", default="127.0.0.1", help="address of the dashboard (default: %(default)s)")
        parser.add_argument("--insecure", action="store_true", help=INSECURE)
        parser.add_argument("--port", type=int, default=8000, help="its port; 0: any free one (default: %(default)s)")

    def handle(self, *args: Any, scenario: str, iterations: int | None, **options: Any) -> None:
        console = Console(stderr=options["as_json"])
        if not console.is_terminal:
            console.width = WIDTH
        chosen = {question: options[question] for question in PLAIN if options[question]}
        challenger = chosen_run(chosen) if chosen else CHALLENGER
        if options["attached"] and chosen.keys() - {"batching"}:
            sys.exit(f"--attached accepts only --batching, found {', '.join(chosen)}.")
        demo = (AttachedDemo if options["attached"] else Demo)(
            SCENARIOS[scenario],
            challenger,
            iterations,
            console,
            host=options["host"],
            port=options["port"] or free_port(),
            keep=options["keep"],
        )
        try:
            check_exposure(options["host"], insecure=options["insecure"])
            held = demo.run(exits=options["exits"], as_json=options["as_json"])
        except CannotStart as error:
            sys.exit(str(error))
        except Refused as refusal:
            sys.exit(f"The control plane rejected the demo's request: {refusal.cure}")
        except Unreachable as error:
            sys.exit(str(error))
        except Interrupted:
            console.print("Interrupted. All processes have ended.")
            sys.exit(INTERRUPTED)
        sys.exit(0 if held else 1)


class Demo:
    """One demo, in an empty folder that is deleted unless it is kept."""

    def __init__(
        self,
        scenario: Scenario,
        challenger: Run,
        iterations: int | None,
        console: Console,
        *,
        host: str,
        port: int,
        keep: Path | None,
    ) -> None:
        self.scenario, self.challenger, self.console = scenario, challenger, console
        self.iterations = iterations or scenario.iterations
        self.host, self.port, self.keep = host, port, keep

    def run(self, *, exits: bool, as_json: bool) -> bool:
        """Run the demo; return whether every check passed."""
        with ExitStack() as stack:
            interruption = stack.enter_context(Interruption())
            folder = kept_folder(self.keep) if self.keep else Path(stack.enter_context(private_folder()))
            supervisor = stack.enter_context(Supervisor(interruption, say=self._say))
            plane = ControlPlane(folder=folder, host=self.host, port=self.port, settings=PRIVATE)
            access, environment = self._start(plane, supervisor)
            client = stack.enter_context(Client(plane.url, access.token))
            held = self._show(plane, access, client, supervisor, as_json=as_json)
            if not exits:
                link = let_in("demo", role="admin", environment=environment).login_link
                self.console.print(
                    f"The dashboard remains available at {link}\nPress Ctrl-C to end it.", soft_wrap=True
                )
                self._wait_for_interruption(supervisor)
        if not exits:
            self.console.print("Ended. All processes have ended.")
        if self.keep:
            self._say(f"The recorded data is kept: PACELINE_DATA_DIR={self.keep} {MANAGE} whatif 1")
        return held

    def _start(self, plane: ControlPlane, supervisor: Supervisor) -> tuple[Access, dict[str, str]]:
        self.console.print(f"Starting a control plane in {plane.folder} ...", soft_wrap=True)
        environment, notices = start_control_plane(plane, supervisor)
        for notice in notices:
            self._say(notice)
        access = let_in("demo", role="admin", environment=environment)
        self.console.print(
            f"Dashboard: {plane.url}\nSign in with this link (once, within five minutes): {access.login_link}",
            soft_wrap=True,
        )
        return access, environment

    def _say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False)

    def _show(
        self, plane: ControlPlane, access: Access, client: Client, supervisor: Supervisor, *, as_json: bool
    ) -> bool:
        """Run both and compare them; return whether every check passed."""
        self._join(plane, client, supervisor)
        summaries, bars = self._compare(client, supervisor)
        return self._close(summaries, bars, as_json=as_json)

    def _join(self, plane: ControlPlane, client: Client, supervisor: Supervisor) -> None:
        speeds = ", ".join(f"{speed:g}" for speed in self.scenario.speeds)
        self.console.print(f"Machines of {speeds} samples/s join; the job: {self.scenario.summary}.", soft_wrap=True)
        start = partial(
            start_agent,
            plane.url,
            client.invite(MACHINES).token,
            name=MACHINES,
            folder=plane.folder / "agent",
            speeds=self.scenario.speeds,
            server_slots=self.scenario.servers,
            log=plane.logs / "agent.log",
        )
        agent = start()
        supervisor.add(agent)
        supervisor.wait_until(
            lambda: agent_is_online(client, MACHINES), what="The enrolment of the machines", seconds=JOIN_S
        )
        supervisor.keep_running({agent.name: start})

    def _compare(self, client: Client, supervisor: Supervisor) -> tuple[list[Summary], list[Bar]]:
        with Display(self.console) as display:
            baseline, challenger = (
                drive(client, run, self.scenario, self.iterations, display, supervisor)
                for run in (BASELINE, self.challenger)
            )
        if self.challenger is not CHALLENGER:
            return self._compare_chosen(baseline, challenger)
        self.factor = speed_up(baseline, challenger)
        summaries = [
            summarise(run.label, record, self.scenario)
            for run, record in ((BASELINE, baseline), (CHALLENGER, challenger))
        ]
        return summaries, judge(self.scenario, baseline, challenger)

    def _compare_chosen(self, baseline: Record, challenger: Record) -> tuple[list[Summary], list[Bar]]:
        summaries = [
            summarise_by_clock(run.label, record, self.scenario)
            for run, record in ((BASELINE, baseline), (self.challenger, challenger))
        ]
        self.factor = summaries[0].seconds / summaries[1].seconds
        return summaries, judge_chosen(self.scenario, baseline, challenger)

    def _close(self, summaries: list[Summary], bars: list[Bar], *, as_json: bool) -> bool:
        if self.challenger is CHALLENGER:
            self.console.print(closing_table(summaries, self.scenario.target, self.factor))
        else:
            self.console.print(chosen_table(summaries, self.scenario.target))
            self._say(what_compares(self.challenger))
        return self._judge(self.scenario.name, self.factor, summaries, bars, as_json=as_json)

    def _judge(self, name: str, factor: float, runs: Sequence[Any], bars: Sequence[Bar], *, as_json: bool) -> bool:
        for bar in bars:
            self.console.print(verdict_line(bar), highlight=False, soft_wrap=True)
        held = all(bar.holds for bar in bars)
        if as_json:
            result = {"scenario": name, "held": held, "speed_up": factor}
            sys.stdout.write(msgspec.json.encode({**result, "runs": runs, "bars": bars}).decode() + "\n")
            sys.stdout.flush()
        return held

    def _wait_for_interruption(self, supervisor: Supervisor) -> None:
        try:
            supervisor.watch()
        except Interrupted:
            return


class AttachedDemo(Demo):
    """The demo of an ordinary script under torchrun, plain and paced. It needs no agent."""

    def _show(
        self, plane: ControlPlane, access: Access, client: Client, supervisor: Supervisor, *, as_json: bool
    ) -> bool:
        scripts = Scripts(
            url=plane.url,
            token=access.token,
            epochs=-(-self.iterations // PER_EPOCH),
            batching=self.challenger.label if self.challenger is not CHALLENGER else BATCHING,
            logs=plane.logs,
            say=self._say,
        )
        (plain, paced), bars = scripts.compare(supervisor)
        self.console.print(scripts_table((plain, paced)))
        factor = plain.iteration_s / paced.iteration_s
        return self._judge("attached", factor, (plain, paced), bars, as_json=as_json)


def private_folder() -> tempfile.TemporaryDirectory[str]:
    """A data folder that is deleted after the demo.

    Raises:
        CannotStart: if none can be created.
    """
    try:
        return tempfile.TemporaryDirectory(prefix="paceline-demo-", ignore_cleanup_errors=True)
    except OSError as error:
        raise CannotStart(
            f"No temporary folder ({error.strerror or error}): set TMPDIR to a writable folder."
        ) from None


def kept_folder(folder: Path) -> Path:
    """A data folder that is kept.

    Raises:
        CannotStart: if it cannot be created, or contains data of another demo.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise CannotStart(f"--keep {folder}: {error.strerror or error}; use a writable folder.") from None
    if not is_empty:
        raise CannotStart(f"--keep {folder}: the folder is not empty; use a new or empty one.")
    return folder.resolve()


def enough(text: str) -> int:
    """A number of iterations that is large enough for shares to settle."""
    if not text.isdecimal() or int(text) < 60:
        raise ArgumentTypeError(f"found {text!r}, expected at least 60: shares settle in the first 30")
    return int(text)
