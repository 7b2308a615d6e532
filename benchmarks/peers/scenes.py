"""Speeds of the emulated machines in samples per second, from the first training pass on."""

from dataclasses import dataclass
from typing import Final

from controlplane.protocol.emulation import Emulation, TracePoint

EVERY_S: Final = 10.0
"""Interval of changes of speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Speeds of all machines; of several phases each lasts ``EVERY_S``, and the first follows the last."""

    name: str
    title: str
    phases: tuple[tuple[float, ...], ...]

    def emulation(self, machine: int) -> Emulation:
        """The emulation of one machine."""
        if len(self.phases) == 1:
            return Emulation(samples_per_second=self.phases[0][machine])
        points = [TracePoint(time=EVERY_S * k, speed=speeds[machine]) for k, speeds in enumerate(self.phases)]
        return Emulation(trace=points, repeat=True)

    @property
    def mean_speeds(self) -> tuple[float, ...]:
        """Mean speed of each machine over all phases."""
        return tuple(sum(speeds) / len(self.phases) for speeds in zip(*self.phases, strict=True))


FIRST: Final = (1000.0, 1000.0, 500.0, 250.0)
SCENES: Final = {
    scene.name: scene
    for scene in (
        Scene(name="steady", title="steady machines: 1000, 1000, 500, 250 samples/s", phases=(FIRST,)),
        Scene(
            name="changing",
            title=f"machines whose speeds change: 1000, 1000, 500, 250, then 250, 1000, 500, 1000, {EVERY_S:g} s each",
            phases=(FIRST, (250.0, 1000.0, 500.0, 1000.0)),
        ),
    )
}
