"""Server processes in virtual time: they start, report, end by orders or faults, and are restarted.

The parameters are in ``servers``; this module has the instances and their reports.
"""

from collections.abc import Callable
from typing import Final

from controlplane.core.commands import StartProcess, StopProcess
from controlplane.core.events import Event, NumberedServerMessage, ProcessDied, ServerMessageReceived
from controlplane.protocol.messages import ServerHello
from controlplane.simulator.kernel import Kernel

NOTICE_S: Final = 0.05
"""How long an agent takes to notice that a process on its machine has ended."""
RESTART_S: Final = 2.0
"""Time from the start of a process to its hello, mostly imports."""
FIRST_PORT: Final = 7000


class ServerProcesses:
    """The servers of one job. ``append_event`` appends an event to the log."""

    def __init__(
        self, kernel: Kernel, append_event: Callable[[Event], None], tensor_sizes: tuple[int, ...], *, initial: int
    ) -> None:
        """``initial`` servers exist from the beginning and say hello immediately."""
        self._kernel, self._append_event, self._tensor_sizes, self._initial = (
            kernel,
            append_event,
            tensor_sizes,
            initial,
        )
        self._instances: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._silent_s: dict[str, float] = {}

    def begin(self) -> None:
        """The initial servers say hello."""
        for index in range(self._initial):
            self._hello(index, self._instances[index])

    def start(self, command: StartProcess, after_s: float = RESTART_S) -> None:
        """An instance starts; except for the first ones, its hello comes ``after_s`` later."""
        is_first = command.index < self._initial and command.index not in self._instances
        self._instances[command.index] = command.instance
        if not is_first:
            self._kernel.after(after_s, self._hello, command.index, command.instance)

    def stop(self, command: StopProcess) -> None:
        """A server ends as ordered."""
        self._end(command.index, command.instance, status=0)

    def die(self, index: int, kind: str) -> None:
        """A server crashes, exits normally (leave), or disappears with its machine (vanish)."""
        instance = self._instances[index]
        if kind == "vanish":
            self._silent_s[instance] = self._kernel.now
        else:
            self._end(index, instance, status=0 if kind == "leave" else -9)

    def say(self, index: int, instance: str, message: Callable[[int], NumberedServerMessage]) -> None:
        """Send a message with the server's next number, if that instance has not ended."""
        if self._instances.get(index) == instance and instance not in self._silent_s:
            number = self._numbers[instance] = self._numbers.get(instance, 0) + 1
            self._append_event(ServerMessageReceived(index=index, instance=instance, message=message(number)))

    def instance(self, index: int) -> str:
        """The latest instance of a server."""
        return self._instances[index]

    def is_over(self, index: int) -> bool:
        """Whether that instance has ended or disappeared."""
        return self._instances[index] in self._silent_s

    def heartbeats(self, begin_ms: int) -> dict[str, int]:
        """Heartbeats as in ``TimePassed``; virtual time 0 is ``begin_ms``."""
        return {
            f"server:{index}:{instance}": begin_ms + int(self._silent_s.get(instance, self._kernel.now) * 1000)
            for index, instance in self._instances.items()
        }

    def _end(self, index: int, instance: str, *, status: int) -> None:
        if self._instances.get(index) == instance and instance not in self._silent_s:
            self._silent_s[instance] = self._kernel.now
            died = ProcessDied(role="server", index=index, instance=instance, status=status)
            self._kernel.after(NOTICE_S, self._noticed, index, died)

    def _noticed(self, index: int, died: ProcessDied) -> None:
        """The end of a process was noticed; instances that were already replaced are ignored."""
        if self._instances[index] == died.instance:
            self._append_event(died)

    def _hello(self, index: int, instance: str) -> None:
        self.say(
            index,
            instance,
            lambda number: ServerHello(
                number=number, host="127.0.0.1", port=FIRST_PORT + index, tensor_sizes=list(self._tensor_sizes)
            ),
        )
