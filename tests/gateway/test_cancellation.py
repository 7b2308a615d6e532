"""Tasks end when they are told to, even where a cancellation is lost on the way."""

import asyncio

from controlplane.gateway.cancellation import end


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    begun = asyncio.Event()

    async def deaf_once() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()  # as asyncio.wait_for does before Python 3.12, if its wait ends just then

    task = asyncio.create_task(deaf_once())
    await begun.wait()
    await end(task)
    assert task.cancelled()


async def test_what_tasks_returned_or_raised_is_kept() -> None:
    async def answer() -> int:
        return 7

    async def fail() -> None:
        raise OSError("gone")

    tasks = asyncio.create_task(answer()), asyncio.create_task(fail())
    await asyncio.wait(tasks)
    first, second = await end(*tasks)
    assert first == 7
    assert isinstance(second, OSError)
