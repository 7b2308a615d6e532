"""Sign-ins are few at a time, and no one holds a place by what they do not send."""

import asyncio
from typing import Any

from controlplane.api.sign_ins import MOST, SignIns


class Door:
    """An application that answers when it is let, with the body that it got."""

    def __init__(self) -> None:
        self.opens = asyncio.Event()
        self.inside = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        self.inside += 1
        await self.opens.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def knock(served: SignIns, *messages: Any, path: str = "/login/", method: str = "POST") -> list[Any]:
    left, sent = list(messages), []

    async def receive() -> Any:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    await served({"path": path, "method": method}, receive, send)
    return sent


def said(body: bytes, *, more: bool = False) -> Any:
    return {"type": "http.request", "body": body, "more_body": more}


async def inside(door: Door, count: int) -> None:
    while door.inside < count:
        await asyncio.sleep(0)


async def test_sign_ins_above_the_limit_get_a_retry_after_later() -> None:
    door = Door()
    served = SignIns(door)
    first = [asyncio.create_task(knock(served, said(b"a"))) for _ in range(MOST)]
    await inside(door, MOST)
    refused = await knock(served, said(b"a"))
    assert (refused[0]["status"], dict(refused[0]["headers"])[b"retry-after"]) == (503, b"2")
    door.opens.set()
    assert [sent[0]["status"] for sent in await asyncio.gather(*first)] == [200] * MOST
    assert (await knock(served, said(b"a")))[0]["status"] == 200


async def test_half_a_body_holds_no_place_and_a_whole_one_is_passed_on() -> None:
    door = Door()
    door.opens.set()
    served = SignIns(door)
    waiting = [asyncio.create_task(knock(served, said(b"a", more=True))) for _ in range(3 * MOST)]
    await asyncio.sleep(0)
    sent = await knock(served, said(b"a", more=True), said(b"b"))
    assert (sent[0]["status"], sent[1]["body"]) == (200, b"ab")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_who_leaves_meanwhile_is_not_served_and_others_are_not_counted() -> None:
    door = Door()
    served = SignIns(door)
    assert await knock(served, said(b"a", more=True), {"type": "http.disconnect"}) == []
    tasks = [asyncio.create_task(knock(served, said(b""), path="/", method="GET")) for _ in range(3 * MOST)]
    await inside(door, 3 * MOST)
    door.opens.set()
    assert [sent[0]["status"] for sent in await asyncio.gather(*tasks)] == [200] * 3 * MOST
