"""Digests of the code that reproduced figures come from: a document's are compared with this checkout's."""

import ast
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
    """Of what all modules in those folders do: another comment, docstring or layout of lines changes nothing."""
    whole = hashlib.sha256()
    for path in sorted(path for folder in sources for path in (root / folder).rglob("*.py")):
        if path.is_relative_to(root / DECLARED) and path.name not in MEASURING:
            continue
        whole.update(f"{path.relative_to(root)}\n{_code(ast.parse(path.read_bytes()))}".encode())
    return whole.hexdigest()[:12]


def _code(node: object) -> str:
    """A syntax tree as text, alike in all versions of Python; :func:`ast.dump` differs in what it leaves out."""
    if isinstance(node, list):
        return f"[{''.join(_code(child) for child in node if not _is_docstring(child))}]"
    if not isinstance(node, ast.AST):
        return f"{node!r};"
    return f"{type(node).__name__}({''.join(f'{name}={_code(getattr(node, name))}' for name in _fields(node))})"


def _fields(node: ast.AST) -> list[str]:
    return [name for name in node._fields if getattr(node, name, None) not in (None, [])]


def _is_docstring(node: object) -> bool:
    """Also what stands below a field: a string that is a statement has no effect."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
