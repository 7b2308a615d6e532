"""The contenders, and the settings among which the best one of each is searched."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.peers import scripts
from benchmarks.peers.running import Ground
from benchmarks.peers.scenes import FIRST, Scene
from benchmarks.peers.task import BATCH, WORLD
from controlplane.policies.batching.apportion import apportion
from controlplane.runtime.embedded.control_plane import CHECKOUT
from controlplane.runtime.embedded.ground import free_port

ADAPTERS: Final = CHECKOUT / ".venv-adapters" / "bin"
SCRIPTS: Final = Path(next(iter(scripts.__path__)))
ASK_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A way to train the task on those machines."""

    name: str
    settings: tuple[str, ...]
    """The first setting is used unless the best is searched."""
    train: Callable[[Ground, str], AbstractContextManager[None]]
    """A context manager that trains until its end."""
    package: str = ""
    """The package that must be installed in the peers' environment."""
    ours: bool = False
    judged: bool = False
    """Whether it makes the same steps on the same samples as others."""
    by_hand: bool = False

    def choices(self, scene: Scene, known: str, *, search: bool) -> tuple[str, ...]:
        """The settings to try: only ``known`` if the best was found before, except for shares set by hand."""
        if self.by_hand:
            return self.settings if search and len(scene.phases) > 1 else self.settings[:1]
        if known:
            return (known,)
        return self.settings if search else self.settings[:1]

    def absent(self) -> str:
        """Why it cannot run; empty if it can."""
        if not self.package:
            return ""
        if not (ADAPTERS / "python").exists():
            return f"{self.package} is not installed: make adapters"
        words = [str(ADAPTERS / "python"), "-c", f"import {self.package}"]
        asked = subprocess.run(words, capture_output=True, text=True, timeout=ASK_S, check=False)
        lines = asked.stderr.strip().splitlines()[-1:]
        return f"{self.package} cannot be imported ({lines[0]}): make adapters" if asked.returncode and lines else ""


def torchrun(script: str, *arguments: str) -> list[str]:
    """The command that starts a rank of the script for each machine."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD)]
    return [sys.executable, *launch, str(SCRIPTS / script), *arguments]


def plain(ground: Ground, setting: str) -> AbstractContextManager[None]:
    """Plain DDP."""
    return ground.running(torchrun("ddp.py"))


def shares_by_hand(scene: Scene, setting: str) -> list[int]:
    """The global batch divided in proportion to speeds that a user has measured."""
    speeds = {"first speeds": FIRST, "mean speeds": scene.mean_speeds}[setting]
    divided = apportion(BATCH * WORLD, dict(enumerate(speeds)), dict.fromkeys(range(WORLD), (1, BATCH * WORLD)))
    return [divided[rank] for rank in range(WORLD)]


def by_hand(ground: Ground, setting: str) -> AbstractContextManager[None]:
    """DDP with shares in proportion to known speeds."""
    return ground.running(torchrun("by_hand.py", ",".join(map(str, shares_by_hand(ground.scene, setting)))))


def ray_train(ground: Ground, setting: str) -> AbstractContextManager[None]:
    """Ray Train, with a cluster of its own."""
    return ground.running([str(ADAPTERS / "python"), str(SCRIPTS / "on_ray_train.py")])


@contextmanager
def torchft(ground: Ground, setting: str) -> Iterator[None]:
    """A lighthouse, and a replica of one rank for each machine."""
    port = free_port()
    lighthouse = ["--bind", f"[::]:{port}", "--min_replicas", str(WORLD), "--quorum_tick_ms", "10"]
    with ExitStack() as stack:
        stack.enter_context(ground.running([str(ADAPTERS / "torchft_lighthouse"), *lighthouse]))
        for replica in range(WORLD):
            words = [str(ADAPTERS / "python"), str(SCRIPTS / "torchft_local_sgd.py"), setting.split()[0]]
            where = {"TORCHFT_LIGHTHOUSE": f"http://localhost:{port}", "REPLICA_GROUP_ID": str(replica)}
            stack.enter_context(ground.running(words, **where, RUST_LOG="off"))
        yield


def flower(ground: Ground, setting: str) -> AbstractContextManager[None]:
    """Flower's own simulation, an actor for each machine."""
    return ground.running([str(ADAPTERS / "python"), str(SCRIPTS / "flower_fedavg.py"), setting.split()[0]])


OTHERS: Final = (
    Contender(name="DDP, plain", settings=("64 each",), train=plain),
    Contender(name="DDP, batches by hand", settings=("first speeds", "mean speeds"), train=by_hand, by_hand=True),
    Contender(name="Ray Train", settings=("64 each",), train=ray_train, package="ray.train.torch"),
    Contender(name="torchft LocalSGD", settings=("4 steps", "16 steps"), train=torchft, package="torchft.local_sgd"),
    Contender(name="Flower FedAvg", settings=("24 steps", "6 steps"), train=flower, package="flwr.simulation"),
)

NATIVE: Final[dict[str, dict[str, Any]]] = {
    "lb-bsp-linear": {"batching": {"name": "lb-bsp-linear"}},
    "lb-bsp-cpu": {"batching": {"name": "lb-bsp-cpu"}},
}
BARRIERS: Final[dict[str, dict[str, Any]]] = {
    "pbsp, 1 sampled": {"barrier": {"name": "pbsp", "sample": 1}},
    "aggressive, ratio 0.5": {"barrier": {"name": "aggressive", "ratio": 0.5}},
    "pssp, 1 sampled, s = 4": {"barrier": {"name": "pssp", "sample": 1, "staleness": 4}},
}
"""One row each in every scene: which barrier is best depends on whether speeds change."""

OURS: Final = (
    "Paceline attached",
    "Paceline native, LB-BSP",
    *(f"Paceline native, {each['barrier']['name']}" for each in BARRIERS.values()),
)


def ours(paceline: Any) -> tuple[Contender, ...]:
    """Paceline's contenders, on that ``PacelineRuns``."""
    native, barrier = partial(paceline.native, NATIVE), partial(paceline.native, BARRIERS)
    return (
        Contender(
            name=OURS[0], settings=("lb-bsp-cpu", "lb-bsp-linear"), train=paceline.attached, ours=True, judged=True
        ),
        Contender(name=OURS[1], settings=tuple(NATIVE), train=native, ours=True, judged=True),
        *(
            Contender(name=name, settings=(setting,), train=barrier, ours=True)
            for name, setting in zip(OURS[2:], BARRIERS, strict=True)
        ),
    )
