"""Digests of the code that reproduced figures come from: a document's are compared with this checkout's."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
POLICIES: Final = ("controlplane/core", "controlplane/policies", "controlplane/protocol")
SIMULATED: Final = (*POLICIES, "controlplane/simulator")
"""What simulated figures come from."""
LIVE: Final = (*POLICIES, "controlplane/runtime", "workers")
"""What figures of real processes come from; changes of pages and tests are none."""
DECLARED: Final = "controlplane/simulator/reproduction"
"""Rows: what each declares is in its own digest, and texts change no figure."""
MEASURING: Final = ("claims.py", "measures.py", "mechanisms.py", "runs.py")
"""Of ``DECLARED``, the modules that figures come from too."""


@cache
def digest_of_code(sources: Sequence[str], root: Path = ROOT) -> str:
    """Of all modules in those folders."""
    whole = hashlib.sha256()
    for path in sorted(path for folder in sources for path in (root / folder).rglob("*.py")):
        if path.is_relative_to(root / DECLARED) and path.name not in MEASURING:
            continue
        whole.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return whole.hexdigest()[:12]
