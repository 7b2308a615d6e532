"""``paceline run --local``: a control plane of this user, for the duration of the command."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from paceline.cli.access import Access, let_in, running_address
from paceline.cli.delegated import SERVER
from paceline.cli.errors import FAILED, Refusal
from paceline.cli.places import environment, with_data_folder

START_S = 90.0
END_S = 30.0
LOOK_S = 0.1
PR_SET_PDEATHSIG = 1


@contextmanager
def control_plane(variables: Mapping[str, str]) -> Iterator[Access]:
    """Yield the control plane of this user's data folder: the running one, otherwise a new one that is stopped when the
    block ends.

    Raises:
        Refusal: if it cannot be started.
    """
    if not SERVER.is_installed:
        raise Refusal(
            f"--local: found no paceline[server] in this environment ({sys.prefix}); install it with "
            "pip install 'paceline[server]', or name a control plane with --url"
        )
    known = with_data_folder(variables)
    if (url := running_address(known)) and answers(url):
        yield let_in(url, known)
        return
    folder = Path(known["PACELINE_DATA_DIR"])
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = folder / "local.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "controlplane.manage", "up", "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**environment(known), "PACELINE_URL": ""},
            start_new_session=True,  # Ctrl-C must reach only the command: this process has to report its exit status
            preexec_fn=_ends_with(os.getpid()),
        )
    try:
        yield let_in(_await_address(process, known, log), known)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ends_with(parent: int) -> Callable[[], None] | None:
    """Prepare the child before it becomes the control plane: the kernel kills it when its parent is killed."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up here: after the fork nothing may allocate or lock

    def ask_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent ended before the request reached the kernel
            os._exit(1)

    return ask_kernel


def answers(url: str) -> bool:
    """Whether a control plane is ready at that address."""
    try:
        return httpx.get(f"{url}/readyz", timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _await_address(process: "subprocess.Popen[bytes]", known: Mapping[str, str], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines() or ["without a word"]
            raise Refusal(f"--local: the control plane exited during startup: {lines[-1]} ({log} has more)", FAILED)
        if (url := running_address(known)) and answers(url):
            return url
        time.sleep(LOOK_S)
    raise Refusal(f"--local: the control plane was not ready within {START_S:.0f} s; see {log}", FAILED)
