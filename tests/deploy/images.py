"""The files and surroundings that a process has inside one of our images."""

import os
import shutil
from pathlib import Path

from tests.deploy.reading import copied


def unpack(stage: str, folder: Path) -> None:
    """Lay out the files of an image as they are under its ``/app``."""
    ignore = shutil.ignore_patterns("__pycache__")
    for source, destination in copied(stage):
        target = folder / destination
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignore)
        else:
            shutil.copy(source, target)


def bare_environment() -> dict[str, str]:
    """Nothing of this machine's but what every process needs."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
