"""Renews the lease of a job that ``paceline run`` launched, while its command runs.

A launcher that is killed cannot report its end. A job without ranks whose lease has expired is ended.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from paceline.cli.processes import PASSED_ON
from paceline.client.retries import Patience
from paceline.client.sync import Client
from paceline.errors import PacelineError, Refused

LEASE_S = 300.0
"""Default: enough for a machine that is suspended briefly, or a short network outage."""

RENEWALS = 10
"""Number of renewals within the duration of a lease, at most one each ``MOST_S``."""

MOST_S = 30.0
ONCE = Patience(tries=1)


@contextmanager
def renewed(client: Client, job: int, lease_s: float) -> Iterator[None]:
    """Renew the lease periodically, until the block ends."""
    over = threading.Event()
    thread = threading.Thread(target=_renew, args=(client, job, lease_s, over), name="paceline-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _renew(client: Client, job: int, lease_s: float, over: threading.Event) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # delivered to the main thread, which waits for the command
    with Client(client.url, client.address.token, patience=ONCE) as own:
        while True:
            try:
                own.renew_lease(job)
            except Refused as error:
                if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    return
            except PacelineError:
                pass  # an outage of the control plane is not a failure of the launcher, and is retried
            if over.wait(min(MOST_S, lease_s / RENEWALS)):
                return
