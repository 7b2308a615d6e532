"""``paceline.Client``: a session with one control plane whose calls block."""

import ssl
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self, TypeVar

import httpx

from paceline.client import control_plane, operations, records
from paceline.client.address import address
from paceline.client.calling import blocking
from paceline.client.retries import Patience, patient
from paceline.client.sending import arguments, lost, reply_of
from paceline.client.steps import Lost, Operation, Reply, Send
from paceline.client.types import Job

T = TypeVar("T")


class Client:
    """A session with one control plane: ``with Client(url, token) as client``.

    Without arguments, ``PACELINE_URL`` and ``PACELINE_API_TOKEN`` are used. A request without a reply is sent again if
    it is idempotent. A refusal raises ``paceline.Refused`` with the control plane's explanation.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        patience: Patience | None = None,
        timeout_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = address(url, token)
        self.patience = patience or Patience()
        self._http = httpx.Client(
            base_url=self.address.base,
            headers=self.address.headers,
            timeout=timeout_s,
            transport=transport,
            trust_env=self.address.may_use_proxy,
            verify=ssl.create_default_context(),
        )

    @property
    def url(self) -> str:
        """The control plane's base URL."""
        return self.address.url

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def drive(self, operation: Operation[T]) -> T:
        """Run an operation."""
        run = patient(operation, self.patience, self.url)
        try:
            step = next(run)
            while True:
                if isinstance(step, Send):
                    try:
                        reply = self._send(step)
                    except Lost as error:
                        step = run.throw(error)
                    else:
                        step = run.send(reply)
                else:
                    time.sleep(step.seconds)
                    step = run.send(None)
        except StopIteration as end:
            found: T = end.value
            return found

    def watch(self, number: int, *, every: float = operations.LOOK_S) -> Iterator[Job]:
        """Yield the job at each change, until it is over."""
        last: Job | None = None
        while last is None or not last.is_over:
            last = self.drive(operations.moved(number, last, every=every))
            yield last

    submit = blocking(operations.submit)
    check = blocking(operations.check)
    job = blocking(operations.job)
    jobs = blocking(operations.jobs)
    wait = blocking(operations.wait)
    stop = blocking(operations.stop)
    pause = blocking(operations.pause)
    resume = blocking(operations.resume)
    finish = blocking(operations.finish)
    renew_lease = blocking(operations.renew_lease)
    prioritise = blocking(operations.prioritise)
    promote = blocking(operations.promote)
    policy = blocking(operations.policy)
    change_policy = blocking(operations.change_policy)
    processes = blocking(operations.processes)
    exclude_worker = blocking(operations.exclude_worker)
    include_worker = blocking(operations.include_worker)
    drain_worker = blocking(operations.drain_worker)
    requests = blocking(operations.requests)
    new_job_token = blocking(operations.new_job_token)
    revoke_job_tokens = blocking(operations.revoke_job_tokens)

    metrics = blocking(records.metrics)
    measurements = blocking(records.measurements)
    decisions = blocking(records.decisions)
    flags = blocking(records.flags)
    figure = blocking(records.figure)
    figure_json = blocking(records.figure_json)
    comparison = blocking(records.comparison)
    report = blocking(records.report)
    trace = blocking(records.trace)
    model = blocking(records.model)
    events = blocking(records.events)

    scenarios = blocking(control_plane.scenarios)
    simulate = blocking(control_plane.simulate)
    what_if = blocking(control_plane.what_if)
    simulation = blocking(control_plane.simulation)
    simulations = blocking(control_plane.simulations)
    wait_simulation = blocking(control_plane.wait_simulation)
    cancel_simulation = blocking(control_plane.cancel_simulation)

    agents = blocking(control_plane.agents)
    invite = blocking(control_plane.invite)
    revoke_invitation = blocking(control_plane.revoke_invitation)
    me = blocking(control_plane.me)
    tokens = blocking(control_plane.tokens)
    new_token = blocking(control_plane.new_token)
    revoke_token = blocking(control_plane.revoke_token)

    def _send(self, request: Send) -> Reply:
        try:
            return reply_of(self._http.request(**arguments(request)))
        except httpx.HTTPError as error:
            raise lost(error) from None
