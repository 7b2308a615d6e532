"""Reads the checkout's own modules: their names, text, and what they import and when."""

import ast
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ("controlplane", "workers", "frontend", "paceline")
"""What the wheel has."""

PACKAGES = (*INSTALLED, "benchmarks")


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; ``at_import``: whether merely importing the importer loads it."""

    name: str
    line: int
    at_import: bool


@dataclass(frozen=True)
class Source:
    """One module of Paceline's."""

    name: str
    path: Path
    tree: ast.Module
    text: str

    @cached_property
    def imports(self) -> list[Import]:
        """Everything that it imports anywhere; a ``from package import module`` counts as the module."""
        return [*_imports(self.tree, at_import=True)]

    @property
    def where(self) -> str:
        """Its path as an error names it."""
        return str(self.path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(), str(path))


@cache
def sources() -> dict[str, Source]:
    """All modules of Paceline's by name, without migrations."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if "migrations" in relative.parts:
                continue
            parts = relative.with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Source(name, path, parsed(path), path.read_text())
    return found


def is_within(name: str, *packages: str) -> bool:
    """Whether the module is one of the packages or inside one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _imports(node: ast.AST, *, at_import: bool) -> list[Import]:
    found = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            found += [Import(alias.name, child.lineno, at_import) for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            found += [
                Import(_resolved(child.module or "", alias.name), child.lineno, at_import) for alias in child.names
            ]
        elif not (isinstance(child, ast.If) and _is_type_checking(child.test)):
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            found += _imports(child, at_import=at_import and not inside)
    return found


@cache
def _resolved(module: str, name: str) -> str:
    """``module.name`` where that is a module of Paceline's, else ``module``."""
    path = ROOT / Path(*module.split("."), name)
    return f"{module}.{name}" if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file() else module


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"
