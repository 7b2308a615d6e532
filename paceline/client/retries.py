"""Decides which requests are sent again: those without a reply or with the reply "retry
later", if they are idempotent.
"""

import random
from collections.abc import Generator
from typing import TypeVar

import msgspec

from paceline.client.steps import Lost, Operation, Reply, Send, Sleep, Step
from paceline.errors import PacelineError, Problem, Refused, Unreachable

T = TypeVar("T")

LATER = frozenset({429, 503})
"""Statuses that mean: not executed, retry later."""
UNSURE = frozenset({502, 504})
"""Statuses of a proxy: the request may have been executed."""

PROBLEM = msgspec.json.Decoder(Problem)


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How often a request is sent in total, and the pauses between attempts: doubled each time, minus random jitter."""

    tries: int = 5
    first_s: float = 0.25
    most_s: float = 8.0

    def pause_s(self, failures: int, retry_after: str = "") -> float:
        """Seconds before the next try, at least what the server requests in ``Retry-After``."""
        own: float = min(self.first_s * 2 ** (failures - 1), self.most_s) * random.uniform(0.5, 1.0)
        return max(own, min(float(retry_after), self.most_s)) if retry_after.isdecimal() else own


def patient(operation: Operation[T], patience: Patience, url: str) -> Operation[T]:
    """Wrap the operation: requests are retried if that is safe; refusals and lost connections
    are raised as our errors.
    """
    try:
        step = next(operation)
        while True:
            if not isinstance(step, Send):
                yield step
                step = operation.send(None)
                continue
            try:
                reply = yield from _exchange(step, patience, url)
            except PacelineError as error:
                step = operation.throw(error)
            else:
                step = operation.send(reply)
    except StopIteration as end:
        found: T = end.value
        return found


def _exchange(request: Send, patience: Patience, url: str) -> Generator[Step, Reply | None, Reply]:
    failures = 0
    while True:
        retry_after = ""
        try:
            reply = yield request
            assert reply is not None
        except Lost as lost:
            failures += 1
            if failures >= patience.tries or (lost.was_sent and not request.may_repeat):
                raise Unreachable(_unanswered(url, request, lost)) from None
        else:
            again = reply.status in LATER or (reply.status in UNSURE and request.may_repeat)
            failures += 1
            if not again or failures >= patience.tries:
                return _accepted(reply, url)
            retry_after = reply.headers.get("retry-after", "")
        yield Sleep(patience.pause_s(failures, retry_after))


def _unanswered(url: str, request: Send, lost: Lost) -> str:
    unsure = lost.was_sent and not request.may_repeat
    doubt = "; it is unknown whether it took effect: check before you retry" if unsure else ""
    return f"{url}: does not answer ({lost}){doubt}"


def _accepted(reply: Reply, url: str) -> Reply:
    """Return the reply, unless it is an error or does not come from a control plane.

    Raises:
        Refused: with the API's problem document.
        Unreachable: if another kind of server replies.
    """
    kind = reply.headers.get("content-type", "").partition(";")[0].strip()
    if reply.status < 300 and (kind.startswith(("application/", "text/")) or reply.status == 204):
        return reply
    if kind == "application/problem+json":
        try:
            problem = PROBLEM.decode(reply.content)
        except msgspec.MsgspecError:
            problem = Problem(status=reply.status, detail=f"refused with status {reply.status}")
        raise Refused(problem)
    raise Unreachable(f"{url}: what answers there is no control plane (status {reply.status})")
