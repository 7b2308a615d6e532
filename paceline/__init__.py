"""The public API: attaching a training script, and a client of the control plane's REST API.

Each name is imported from its module on first use. A script that only attaches does not import an HTTP client, and
importing ``paceline`` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from controlplane.protocol import RELEASE

__version__ = RELEASE

if TYPE_CHECKING:
    from paceline.attaching import attach
    from paceline.client.awaited import AsyncClient
    from paceline.client.retries import Patience
    from paceline.client.sync import Client
    from paceline.errors import CannotAttach, PacelineError, Refused, Stopped, Unreachable
    from paceline.pacer import Pacer

_HOMES = {
    "AsyncClient": "paceline.client.awaited",
    "CannotAttach": "paceline.errors",
    "Client": "paceline.client.sync",
    "Pacer": "paceline.pacer",
    "PacelineError": "paceline.errors",
    "Patience": "paceline.client.retries",
    "Refused": "paceline.errors",
    "Stopped": "paceline.errors",
    "Unreachable": "paceline.errors",
    "attach": "paceline.attaching",
}
"""The module that defines each exported name."""

__all__ = [
    "AsyncClient",
    "CannotAttach",
    "Client",
    "PacelineError",
    "Pacer",
    "Patience",
    "Refused",
    "Stopped",
    "Unreachable",
    "__version__",
    "attach",
]


def __getattr__(name: str) -> object:
    """Return the exported object from the module that defines it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
