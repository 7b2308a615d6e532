"""``make demo ARGS=--attached``: an ordinary DDP script under torchrun, unchanged and paced, on emulated ranks.

Times and accuracies are parsed from the output of both scripts, not read from the control plane.
"""

import difflib
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from controlplane.api.demo.scenarios import SPEEDS
from controlplane.api.demo.verdict import Bar
from controlplane.runtime.embedded.control_plane import CHECKOUT
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.processes import start_service
from controlplane.runtime.embedded.sockets import socket_folder
from controlplane.runtime.embedded.supervisor import Supervisor

RATIO = 0.45
"""The paced script's iteration time may be at most this fraction of the plain one's; the emulated ranks allow 0.36."""
ACCURACY = 0.93
POINTS = 2.0
LINES = 8

PER_EPOCH = 3
BATCHING = "lb-bsp-linear"
LOOK_S = 0.3
LOADER_SOCKET = "pymp-12345678/listener-12345678"
"""A path with the length of the socket paths of a DataLoader's processes, under TMPDIR."""
PLAIN, PACED = "train.py", "train_paceline.py"

EPOCH = re.compile(r"epoch (\d+): loss (\S+), accuracy (\S+), (\S+) s/iteration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A script's output about one pass over its data."""

    number: int
    loss: float
    accuracy: float
    iteration_s: float


@dataclass(slots=True, kw_only=True)
class ScriptRun:
    """One of the two scripts, and its output so far."""

    label: str
    epochs: list[Epoch] = field(default_factory=list)

    def read(self, printed: str) -> list[Epoch]:
        """Parse the output; return the new epochs."""
        found = [
            Epoch(number=int(number), loss=float(loss), accuracy=float(accuracy), iteration_s=float(seconds))
            for number, loss, accuracy, seconds in EPOCH.findall(printed)
        ]
        new = found[len(self.epochs) :]
        self.epochs += new
        return new

    @property
    def iteration_s(self) -> float:
        """Mean over the second half of its epochs: shares have settled by then."""
        late = [epoch.iteration_s for epoch in self.epochs[len(self.epochs) // 2 :]]
        return sum(late) / len(late) if late else math.nan

    @property
    def accuracy(self) -> float:
        """The value after its last epoch."""
        return self.epochs[-1].accuracy if self.epochs else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripts:
    """Runs both scripts."""

    url: str
    token: str
    epochs: int
    batching: str
    logs: Path
    say: Callable[[str], None]

    def compare(self, supervisor: Supervisor) -> tuple[list[ScriptRun], list[Bar]]:
        """Run the plain one, then the paced one.

        Raises:
            CannotStart: if one of them fails.
            Interrupted: if the user interrupts it.
        """
        folder = examples()
        changed = lines_changed(folder / PLAIN, folder / PACED)
        self.say(f"{PLAIN} and {PACED} in {folder}: {changed} lines differ.")
        # Processes of a DataLoader leave folders with sockets behind.
        temporary = socket_folder(LOADER_SOCKET)
        try:
            own = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
            plain = self._run("plain", torchrun(folder / PLAIN, self.epochs), own, supervisor)
            known = {**own, "PACELINE_API_TOKEN": self.token}
            paced = self._run("paced", self._paced(folder / PACED), known, supervisor)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return [plain, paced], judge_scripts(plain, paced, changed)

    def _paced(self, script: Path) -> list[str]:
        run = ["run", "--url", self.url, "--name", script.stem, "--batching", self.batching]
        return [sys.executable, "-m", "paceline", *run, "--", *torchrun(script, self.epochs)]

    def _run(
        self, label: str, command: Sequence[str], environment: Mapping[str, str], supervisor: Supervisor
    ) -> ScriptRun:
        self.say(f"{label}: {shown_command(command)}")
        log = self.logs / f"{label}.log"
        service = start_service(label, command, log=log, environment=environment, folder=CHECKOUT)
        run = ScriptRun(label=label)
        try:
            while True:
                over = service.is_over()
                for epoch in run.read(log.read_text(errors="replace")):
                    self.say(
                        f"  {label} epoch {epoch.number}/{self.epochs}  loss {epoch.loss:.3f}  accuracy "
                        f"{epoch.accuracy:.3f}  {1000 * epoch.iteration_s:.0f} ms/iteration"
                    )
                if over:
                    break
                supervisor.check()
                supervisor.interruption.pause(LOOK_S)
        finally:
            service.ask_to_stop()
            service.await_stop(10.0)
        if service.process.returncode:
            service.check()
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith("paceline: "):
                self.say(f"  {line}")
        return run


def torchrun(script: Path, epochs: int) -> list[str]:
    """The command that runs the script on emulated ranks of this machine."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(len(SPEEDS))]
    emulate = [str(examples() / "emulate.py"), ",".join(f"{speed:g}" for speed in SPEEDS)]
    return [sys.executable, *launch, *emulate, str(script), "--epochs", str(epochs)]


def shown_command(command: Sequence[str]) -> str:
    """A command as a user would type it."""
    words = " ".join(command).replace(f"{sys.executable} -m torch.distributed.run", "torchrun")
    return words.replace(f"{sys.executable} -m ", "").replace(f"{CHECKOUT}/", "")


def examples() -> Path:
    """The folder of the example scripts.

    Raises:
        CannotStart: if there is none.
    """
    for folder in (CHECKOUT / "examples", CHECKOUT / "paceline" / "examples"):
        if (folder / PACED).is_file():
            return folder
    raise CannotStart("--attached: the example scripts are missing; they are in checkouts and wheels.")


def lines_changed(plain: Path, paced: Path) -> int:
    """Number of lines that were added or replaced; blank ones do not count."""
    before, after = ([line for line in path.read_text().splitlines() if line.strip()] for path in (plain, paced))
    moves = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for tag, a, b, c, d in moves if tag != "equal")


def judge_scripts(plain: ScriptRun, paced: ScriptRun, changed: int) -> list[Bar]:
    """Every check, in the order in which they are shown."""
    ratio = paced.iteration_s / plain.iteration_s
    worst = min(plain.accuracy, paced.accuracy)
    apart = 100 * abs(plain.accuracy - paced.accuracy)
    return [
        _bar(
            "iteration time of the paced script over the plain one's",
            f"at most {RATIO}",
            f"{ratio:.3f}",
            ratio <= RATIO,
        ),
        _bar("accuracy at the end", f"at least {ACCURACY}", f"{worst:.4f}", worst >= ACCURACY),
        _bar("difference of accuracies", f"at most {POINTS:g} points", f"{apart:.2f} points", apart <= POINTS),
        _bar("lines that differ", f"at most {LINES}", str(changed), changed <= LINES),
    ]


def scripts_table(runs: Sequence[ScriptRun]) -> Table:
    """Both scripts side by side."""
    plain, paced = runs
    factor = plain.iteration_s / paced.iteration_s
    table = Table(title=f"With Paceline, iterations are {factor:.2f} times as fast", title_justify="left")
    for heading in ("", "mean iteration", "final accuracy", "speed-up"):
        table.add_column(heading, justify="right" if heading else "left")
    for run in runs:
        speed_up = f"{plain.iteration_s / run.iteration_s:.2f}x"
        table.add_row(run.label, f"{1000 * run.iteration_s:.0f} ms", f"{run.accuracy:.4f}", speed_up)
    return table


def _bar(name: str, expected: str, found: str, holds: bool) -> Bar:
    return Bar(name=name, expected=expected, found=found, holds=bool(holds))
