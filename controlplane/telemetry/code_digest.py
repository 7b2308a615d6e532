"""Digests of the code that measures reproduced figures: those of a document are compared with this checkout's."""

import ast
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
POLICIES: Final = ("controlplane/core", "controlplane/policies", "controlplane/protocol")
SIMULATED: Final = (*POLICIES, "controlplane/simulator")
"""The code that simulated figures depend on."""
LIVE: Final = (*POLICIES, "controlplane/runtime", "workers")
"""The code that live figures depend on; pages and tests do not count."""
DECLARED: Final = "controlplane/simulator/reproduction"
"""Modules with declarations of rows: each row has its own digest, and texts do not affect figures."""
LIVE_SCENARIOS: Final = "live_"
"""How modules of ``scenarios`` with live runs begin: no simulated row plays them."""
MEASURING: Final = ("claims.py", "measures.py", "mechanisms.py", "runs.py")
"""The modules in ``DECLARED`` that figures depend on too."""


@cache
def digest_of_code(sources: Sequence[str], root: Path = ROOT) -> str:
    """Digest of all modules in these folders, without comments, docstrings and layout."""
    whole = hashlib.sha256()
    for path in sorted(path for folder in sources for path in (root / folder).rglob("*.py")):
        if path.is_relative_to(root / DECLARED) and path.name not in MEASURING:
            continue
        if path.parent.name == "scenarios" and path.name.startswith(LIVE_SCENARIOS):
            continue
        whole.update(f"{path.relative_to(root)}\n{_code(ast.parse(path.read_bytes()))}".encode())
    return whole.hexdigest()[:12]


def _code(node: object) -> str:
    """A syntax tree as text, equal in all versions of Python; :func:`ast.dump` omits different fields in different
    versions.
    """
    if isinstance(node, list):
        return f"[{''.join(_code(child) for child in node if not _is_docstring(child))}]"
    if not isinstance(node, ast.AST):
        return f"{node!r};"
    return f"{type(node).__name__}({''.join(f'{name}={_code(getattr(node, name))}' for name in _fields(node))})"


def _fields(node: ast.AST) -> list[str]:
    return [name for name in node._fields if getattr(node, name, None) not in (None, [])]


def _is_docstring(node: object) -> bool:
    """Also for the docstring of a field: a string statement has no effect."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
