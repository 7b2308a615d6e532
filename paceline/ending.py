"""Detects how a script ends: normally or with an exception. Only a loop that ends normally has finished its job.

Python calls a hook for an uncaught exception, one for the main thread and one for others, and none for ``sys.exit``.
Ray Train runs the loop in a thread and catches its exceptions, so its state is read from Ray.
"""

import atexit
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Protocol


class Ending(Protocol):
    """Receives how the script ends."""

    def failed(self, error: BaseException) -> None:
        """The script ends with ``error``; ``close`` follows."""

    def close(self) -> None:
        """The script is over."""


ErrorOf = Callable[[], BaseException | None]
"""The exception with which a loop's thread has ended, or None."""


def watch_for_the_end(pacer: Ending) -> None:
    """Notify ``pacer`` how the script whose loop runs in this thread ends."""
    atexit.register(pacer.close)
    loop = threading.current_thread()
    _hook_main_thread(pacer)
    _hook_exit(pacer)
    if loop is threading.main_thread():
        return
    _hook_other_threads(pacer, loop)
    if "ray.train" in sys.modules and (error_of_loop := _asked_of_ray(loop)) is not None:
        _close_behind(pacer, loop, error_of_loop)


def _hook_main_thread(pacer: Ending) -> None:
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        try:
            pacer.failed(error)
        finally:
            before(kind, error, traceback)

    sys.excepthook = hook


def _hook_exit(pacer: Ending) -> None:
    before = sys.exit

    def leave(status: Any = None, /) -> NoReturn:
        if status:
            pacer.failed(SystemExit(status))
        before(status)

    sys.exit = leave


def _hook_other_threads(pacer: Ending, loop: threading.Thread) -> None:
    before = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        try:
            if raised.thread is loop and raised.exc_value is not None:
                pacer.failed(raised.exc_value)
        finally:
            before(raised)

    threading.excepthook = hook


def _close_behind(pacer: Ending, loop: threading.Thread, error_of_loop: ErrorOf) -> None:
    """Close the pacer once Ray's training loop has ended: Ray ends its workers without running exit handlers."""

    def close() -> None:
        loop.join()
        if (error := error_of_loop()) is not None:
            pacer.failed(error)
        pacer.close()

    threading.Thread(target=close, name="paceline-end", daemon=True).start()


def _asked_of_ray(loop: threading.Thread) -> ErrorOf | None:
    """A function that returns the exception with which Ray's training loop has ended; None: the thread is not Ray's."""
    if type(loop).__module__.startswith("ray."):
        return _noted(loop)
    try:
        from ray.train.v2._internal.execution.context import get_train_context

        runner = get_train_context().execution_context.training_thread_runner
    except RuntimeError:  # no training loop of Ray's runs in this process
        return None
    except Exception as error:  # a release of Ray with other names
        unknown = RuntimeError(f"how Ray's training loop ends cannot be read: {error!r}")
        return lambda: unknown
    # Ray wraps the exception, so that its traceback can be sent to the driver.
    return lambda: getattr(error := runner.get_error(), "_base_exc", error)


def _noted(loop: Any) -> ErrorOf:
    """For Ray Train V1, whose thread passes its exception on and does not keep it."""
    raised: list[BaseException] = []
    pass_on = loop._propagate_exception

    def note(error: BaseException) -> None:
        raised.append(error)
        pass_on(error)

    loop._propagate_exception = note
    return lambda: raised[0] if raised else None
