"""``paceline slurm follow -- srun ...``: runs in the Slurm allocation and keeps the Slurm job and Paceline's job in
step.

Slurm ends a job by SIGTERM to this script, or only to its steps (a preemption with a grace time). When either ends,
Slurm is queried for the reason. SIGUSR1 precedes the time limit: ranks and agents leave, and the script requeues
itself. The end of Paceline's job is polled.
"""

import os
import signal
import subprocess
import time
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final

from paceline.cli import access
from paceline.cli.errors import FAILED, OK, Refusal
from paceline.cli.places import environment
from paceline.cli.processes import NO_COMMAND, ending
from paceline.cli.run import END, OVER, say
from paceline.cli.slurm import queue
from paceline.cli.slurm.script import NOTICE
from paceline.client.retries import Patience
from paceline.client.sync import Client
from paceline.client.types import Job
from paceline.errors import PacelineError, Refused

LOOK_S: Final = 2.0
STOP_S: Final = 45.0
"""How long ranks may take to end by themselves after their job is over."""

STEP_S: Final = 60.0
"""How long a step may take to end after its srun."""

SIGNALS: Final = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD}
ONCE: Final = Patience(tries=1)


def carry_out(options: Namespace) -> int:
    """Run the command until it ends, the Slurm job ends or Paceline's job ends; return its exit code.

    Raises:
        Refusal: if this does not run in a Slurm job, or the command cannot be started.
    """
    if not options.behind:
        raise Refusal("paceline slurm follow: found no command, expected srun and what it starts behind --")
    number = os.environ.get("SLURM_JOB_ID", "")
    if not number.isdecimal():
        raise Refusal(
            f"SLURM_JOB_ID: found {number!r}, expected the number of a job; paceline slurm submit writes the script "
            "in which this runs"
        )
    found = access.find(options, os.environ)
    with Client(found.address.url, found.address.token, patience=ONCE, timeout_s=5.0) as client:
        return Follower(client, int(os.environ["PACELINE_JOB"]), int(number), options).run(options.behind)


class Ending(Enum):
    """How Slurm ended its job."""

    NONE = "none"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """Ended by the time limit, a preemption or a lost node: with ``--requeue`` it starts again."""
    REQUEUED = "requeued"


class Follower:
    """One run of a Slurm job: reports the end of each job to the other system."""

    def __init__(self, client: Client, job: int, slurm: int, options: Namespace) -> None:
        self._client, self._job, self._slurm = client, job, slurm
        self._requeues, self._agents, self._token_file = options.requeue, options.agents, options.token_file
        self._restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        self._noticed = False
        self._end = Ending.NONE
        self._reason = ""
        self._over_for_s = 0.0

    def run(self, command: list[str]) -> int:
        """Run the command; return the exit code of the script."""
        if (job := self._look()) is not None and job.is_over:
            say(f"job {self._job} is over ({job.state}): nothing is started")
            return self._finish(job, OK)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        former = self._status_of_steps()
        try:
            process = subprocess.Popen(
                command,
                env=self._environment(os.environ),
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),
            )
            while process.poll() is None:
                self._wait_for_signal(process)
            code = process.returncode
            return self._close(self._status(former) if code == OK else 128 - code if code < 0 else code)
        except OSError as error:
            self._report_end(NO_COMMAND, f"{command[0]} cannot be run in Slurm job {self._slurm} ({error.strerror})")
            raise Refusal(f"{command[0]}: cannot be run ({error.strerror})", NO_COMMAND) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _wait_for_signal(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait for a signal, or until the next poll."""
        came = signal.sigtimedwait(SIGNALS, LOOK_S)
        if came is None:
            job = self._look()
            if job is not None and job.is_over:
                self._end_command(process, job)
        elif came.si_signo == signal.SIGUSR1:
            self._take_notice()
        elif came.si_signo in (signal.SIGTERM, signal.SIGINT) and self._end is Ending.NONE:
            self._ask_slurm(received=signal.Signals(came.si_signo).name)
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def _take_notice(self) -> None:
        """Handle the notice before the time limit: attached ranks leave at one iteration, agents together with their
        processes.
        """
        self._noticed = True
        say(
            f"Slurm job {self._slurm} will be ended soon: {'agents' if self._agents else 'ranks'} are signalled to stop"
        )
        with suppress(Refusal):  # they may already be leaving
            queue.signal_steps(self._slurm, "TERM" if self._agents and self._requeues else NOTICE)

    def _ask_slurm(self, *, received: str = "") -> None:
        """Query how Slurm ends its job; if it was cancelled, stop Paceline's job."""
        self._end, self._reason = self._why(received=received)
        if self._end is Ending.CANCELLED:
            self._stop(self._reason)

    def _why(self, *, received: str = "") -> tuple["Ending", str]:
        """How Slurm ends the job, with a sentence that states it; ``received``: the signal that ended this script."""
        who = f"Slurm job {self._slurm}"
        unknown = (Ending.CANCELLED, f"{who} was ended by {received}") if received else (Ending.NONE, "")
        try:
            facts = queue.facts(self._slurm)
        except Refusal:
            return unknown
        if int(facts.get("Restarts", "0")) > self._restarts:
            return Ending.REQUEUED, f"{who} was requeued"
        if why := queue.interruption(facts):
            return Ending.INTERRUPTED, f"{who} {why}"
        if queue.is_ending(facts):
            return Ending.CANCELLED, f"{who} was cancelled"
        return unknown

    def _end_command(self, process: "subprocess.Popen[bytes]", job: Job) -> None:
        """The job is over: agents leave immediately, ranks by themselves at the end of an iteration."""
        if not self._over_for_s:
            say(f"job {self._job} is over ({job.state}): {job.reason or 'no reason was given'}")
        self._over_for_s += LOOK_S
        if self._agents or self._over_for_s > STOP_S:
            with suppress(Refusal):
                queue.signal_steps(self._slurm, "TERM")

    def _status(self, former: int | None) -> int:
        """The exit status of a step whose srun has exited with 0; ``former``: that of the steps before it.

        srun also exits with 0 if a cancelled step did not end in time: it has then stopped waiting for it. Slurm learns
        later how the step ended.
        """
        until = time.monotonic() + STEP_S
        try:
            while self._end is Ending.NONE and queue.has_steps(self._slurm):
                if time.monotonic() > until:
                    return FAILED
                if came := signal.sigtimedwait({signal.SIGTERM, signal.SIGINT}, LOOK_S):
                    self._ask_slurm(received=signal.Signals(came.si_signo).name)
        except Refusal:
            return OK
        status = self._status_of_steps()
        return OK if status is None or status == former else status

    def _status_of_steps(self) -> int | None:
        """The highest exit status of the steps that have ended; None if Slurm does not respond."""
        try:
            return queue.status_of_steps(queue.facts(self._slurm))
        except Refusal:
            return None

    def _close(self, code: int) -> int:
        """The command has ended: report it to Slurm and to Paceline, unless already known there."""
        job = self._look()
        is_done = code == OK and job is not None and job.state == "finishing"
        if self._end is Ending.NONE and not is_done and (job is None or not job.is_over):
            self._ask_slurm()
        if self._end is Ending.REQUEUED:
            say(f"{self._reason}: job {self._job} continues when it starts again")
            return code
        if self._end is Ending.CANCELLED or (self._end is Ending.INTERRUPTED and not self._requeues):
            self._report_end(code or FAILED, self._reason)
            return self._finish(None, code or FAILED)
        if job is not None and job.is_over:
            return self._finish(job, code)
        if self._requeues and (self._noticed or self._end is Ending.INTERRUPTED) and not is_done:
            return self._requeue(code)
        self._report_end(code, self._how(code) if code else "")
        return self._finish(None, code)

    def _how(self, code: int) -> str:
        """How the command ended: by itself, or by an action of Slurm of which this script is not notified, such as a
        cancelled step.
        """
        who, how = "agents" if self._agents else "ranks", f", {word}" if (word := ending(code)) else ""
        output = Path(self._token_file).with_name(f"output-{self._slurm}.txt")
        where = f"; {output} has what they printed" if output.exists() else ""
        return f"the {who} of Slurm job {self._slurm} ended with {code}{how}{where}"

    def _requeue(self, code: int) -> int:
        why = f" ({self._reason})" if self._reason else ""
        say(f"Slurm job {self._slurm} is requeued{why}, and job {self._job} continues when it starts again")
        try:
            queue.requeue(self._slurm)
        except Refusal as refusal:
            self._report_end(code or FAILED, f"Slurm job {self._slurm} could not be requeued: {refusal}")
            raise
        signal.sigtimedwait({signal.SIGTERM}, STOP_S)  # Slurm ends only this script
        return code

    def _report_end(self, code: int, reason: str) -> None:
        """Report the job's end, depending on what Slurm ran."""
        if self._agents:
            self._stop(reason or f"the agents of Slurm job {self._slurm} ended")
            return
        try:
            with Client(self._client.url, self._client.address.token, patience=END) as patient:
                patient.finish(self._job, exit_code=min(code, 255), reason=reason)
        except PacelineError as error:
            self._print_unless_over(error)

    def _stop(self, reason: str) -> None:
        try:
            self._client.stop(self._job, reason=reason)
        except PacelineError as error:
            self._print_unless_over(error)

    def _print_unless_over(self, error: PacelineError) -> None:
        if not (isinstance(error, Refused) and error.status == OVER):
            say(f"job {self._job}: its end could not be reported ({error})")

    def _finish(self, job: Job | None, code: int) -> int:
        """Revoke the tokens, which are no longer needed."""
        for file in (self._token_file, Path(self._token_file).with_name("enrolment-token")):
            with suppress(OSError):
                file.unlink()
        if job is not None and self._agents:
            return OK if job.succeeded else FAILED
        return code

    def _look(self) -> Job | None:
        """The job, if the control plane responds."""
        try:
            return self._client.job(self._job)
        except PacelineError:
            return None

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The environment of ranks; agents have their own token. Neither gets the API token of the submitter."""
        known = environment({name: value for name, value in variables.items() if name != "PACELINE_API_TOKEN"})
        if not self._agents:
            known |= {"PACELINE_TOKEN": self._client.address.token, "PACELINE_LAUNCHER": "slurm"}
            known |= {"PACELINE_LEAVE_ON": NOTICE} if self._requeues else {}
        return known
