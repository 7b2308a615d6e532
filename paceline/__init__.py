"""Paceline for training scripts and for programs that talk to a control plane; ``import paceline`` loads neither.

Every name comes from its module when it is first used: a script that only attaches loads no HTTP client, and nothing
here loads torch before the script has.
"""

from importlib import import_module

from controlplane.protocol import RELEASE

__version__ = RELEASE

_HOMES: dict[str, str] = {}
"""The module of each name that is exported."""

__all__ = ["__version__"]


def __getattr__(name: str) -> object:
    """The exported thing, from its own module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
