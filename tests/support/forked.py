"""Ranks of a test's script, forked from a process that has imported torch: each would take two seconds to do so."""

import atexit
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

FORKED = multiprocessing.get_context("forkserver")
"""Its server has one thread and none of this process's files; the first rank starts it, and it ends with us."""

WARMTH = "workers.spawner.warmth"
"""Also what torch imports only with its first optimizer."""


class Rank:
    """A process that calls ``main()`` of a module; what a test uses of ``subprocess.Popen``."""

    def __init__(self, module: str, environment: Mapping[str, str], output: Path) -> None:
        FORKED.set_forkserver_preload([WARMTH, module])
        self._process = FORKED.Process(target=_run, args=(module, dict(environment), str(output)))
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """As ``Popen`` has it: negative where a signal ended it, none while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """Its exit code.

        Raises:
            TimeoutError: if it is not over by then.
        """
        self._process.join(seconds)
        if self.returncode is None:
            raise TimeoutError(f"process {self.pid}: not over within {seconds:g} s")
        return self.returncode

    def end(self) -> None:
        """Kill it, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
        self._process.join()
        self._process.close()


def _run(module: str, environment: dict[str, str], output: str) -> None:
    """As ``python -m module`` with these variables: its own session, its words in a file, its end by ``sys.exit``."""
    os.setsid()
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.environ.clear()
    os.environ.update(environment)
    main: Callable[[], int] = importlib.import_module(module).main
    try:
        status = main()
    except BaseException:
        sys.excepthook(*sys.exc_info())  # as the interpreter does, and a library may have replaced it
        status = 1
    atexit._run_exitfuncs()  # which multiprocessing leaves out
    sys.exit(status)
