"""``paceline.AsyncClient``: a session with one control plane, on an event loop."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self, TypeVar

import httpx

from paceline.client import control_plane, operations, records
from paceline.client.address import address
from paceline.client.calling import awaiting
from paceline.client.retries import Patience, patient
from paceline.client.sending import arguments, lost, reply_of
from paceline.client.steps import Lost, Operation, Reply, Send
from paceline.client.types import Job

T = TypeVar("T")


class AsyncClient:
    """``async with AsyncClient(url, token) as client``: as ``Client``, with methods that are awaited."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        patience: Patience | None = None,
        timeout_s: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.address = address(url, token)
        self.patience = patience or Patience()
        self._http = httpx.AsyncClient(
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

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def drive(self, operation: Operation[T]) -> T:
        """Run an operation."""
        run = patient(operation, self.patience, self.url)
        try:
            step = next(run)
            while True:
                if isinstance(step, Send):
                    try:
                        reply = await self._send(step)
                    except Lost as error:
                        step = run.throw(error)
                    else:
                        step = run.send(reply)
                else:
                    await asyncio.sleep(step.seconds)
                    step = run.send(None)
        except StopIteration as end:
            found: T = end.value
            return found

    async def watch(self, number: int, *, every: float = operations.LOOK_S) -> AsyncIterator[Job]:
        """The job at each change, until it is over."""
        last: Job | None = None
        while last is None or not last.is_over:
            last = await self.drive(operations.moved(number, last, every=every))
            yield last

    submit = awaiting(operations.submit)
    check = awaiting(operations.check)
    job = awaiting(operations.job)
    jobs = awaiting(operations.jobs)
    wait = awaiting(operations.wait)
    stop = awaiting(operations.stop)
    pause = awaiting(operations.pause)
    resume = awaiting(operations.resume)
    finish = awaiting(operations.finish)
    renew_lease = awaiting(operations.renew_lease)
    prioritise = awaiting(operations.prioritise)
    promote = awaiting(operations.promote)
    policy = awaiting(operations.policy)
    change_policy = awaiting(operations.change_policy)
    processes = awaiting(operations.processes)
    exclude_worker = awaiting(operations.exclude_worker)
    include_worker = awaiting(operations.include_worker)
    drain_worker = awaiting(operations.drain_worker)
    requests = awaiting(operations.requests)
    new_job_token = awaiting(operations.new_job_token)
    revoke_job_tokens = awaiting(operations.revoke_job_tokens)

    metrics = awaiting(records.metrics)
    measurements = awaiting(records.measurements)
    decisions = awaiting(records.decisions)
    flags = awaiting(records.flags)
    figure = awaiting(records.figure)
    figure_json = awaiting(records.figure_json)
    comparison = awaiting(records.comparison)
    report = awaiting(records.report)
    trace = awaiting(records.trace)
    model = awaiting(records.model)
    events = awaiting(records.events)

    scenarios = awaiting(control_plane.scenarios)
    simulate = awaiting(control_plane.simulate)
    what_if = awaiting(control_plane.what_if)
    simulation = awaiting(control_plane.simulation)
    simulations = awaiting(control_plane.simulations)
    wait_simulation = awaiting(control_plane.wait_simulation)
    cancel_simulation = awaiting(control_plane.cancel_simulation)

    agents = awaiting(control_plane.agents)
    invite = awaiting(control_plane.invite)
    revoke_invitation = awaiting(control_plane.revoke_invitation)
    me = awaiting(control_plane.me)
    tokens = awaiting(control_plane.tokens)
    new_token = awaiting(control_plane.new_token)
    revoke_token = awaiting(control_plane.revoke_token)

    async def _send(self, request: Send) -> Reply:
        try:
            return reply_of(await self._http.request(**arguments(request)))
        except httpx.HTTPError as error:
            raise lost(error) from None
