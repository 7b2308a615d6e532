"""Versions of the software that a process runs on, in one format for the control plane and its machines."""

import platform
from importlib.metadata import PackageNotFoundError, version


def system() -> str:
    """Operating system, its release, and the processor's architecture: ``Linux 6.8.0 x86_64``."""
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def release_of(package: str) -> str:
    """The version that is installed here; empty where none is."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
