"""What a policy is called decides nothing: code asks what it can do (``core/choices.py``, ``core/barriers.py``)."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from controlplane.policies import registry
from tests.architecture.sources import Source, is_within, sources

NAMES = {name for question in registry.QUESTIONS for name in registry.names(question)}

Constants = Mapping[str, set[str]]
"""Texts within a module's constants, by the constant's name."""


def texts(node: ast.AST, constants: Constants) -> set[str]:
    """The texts within an expression, those of named constants too."""
    found: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            found.add(each.value)
        elif isinstance(each, ast.Name | ast.Attribute):
            found |= constants.get(each.id if isinstance(each, ast.Name) else each.attr, set())
    return found


@cache
def own_constants(tree: ast.Module) -> dict[str, set[str]]:
    """Constants of the module, with the texts that they hold."""
    found: dict[str, set[str]] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper() and isinstance(value, ast.expr):
                found[target.id] = texts(value, found)
    return found


def constants_of(source: Source) -> dict[str, set[str]]:
    """Its own constants, and those of the modules of Paceline's that it imports."""
    found: dict[str, set[str]] = {}
    for name in {each.name for each in source.imports} & sources().keys():
        found |= own_constants(sources()[name].tree)
    return found | own_constants(source.tree)


def is_name(node: ast.expr) -> bool:
    """Whether it is someone's ``name``, or a part of it."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return isinstance(node, ast.Attribute) and node.attr == "name"


def compared(tree: ast.AST, constants: Constants) -> Iterator[tuple[int, str]]:
    """Lines that compare someone's ``name`` with that of a policy."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides: list[ast.AST] = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            sides = [node.subject, *(case.pattern for case in node.cases)]
        else:
            continue
        named = [isinstance(side, ast.expr) and is_name(side) for side in sides]
        others = [side for side, is_named in zip(sides, named, strict=True) if not is_named]
        if any(named) and any(texts(side, constants) & NAMES for side in others):
            yield node.lineno, ast.unparse(node).partition("\n")[0]


def test_no_module_compares_the_name_of_a_policy() -> None:
    asked = [
        f"{source.where}:{line}: {text}"
        for source in sources().values()
        if is_within(source.name, "controlplane", "frontend", "workers", "paceline")
        for line, text in compared(source.tree, constants_of(source))
    ]
    assert asked == []


def found_in(text: str) -> int:
    tree = ast.parse(text)
    return len([*compared(tree, own_constants(tree))])


def test_what_would_be_found() -> None:
    assert found_in('spec.batching.name != "uniform" or chosen.barrier.name in ("bsp", "asp")') == 2
    assert (
        found_in('ADDS: Final = "psld"\nFEW = {ADDS: 3}\nspec.placement.name == ADDS or spec.placement.name in FEW')
        == 2
    )
    assert found_in('match chosen.barrier.name:\n    case "bsp" | "asp":\n        pass') == 1
    assert found_in('chosen.barrier.name.lower() == "bsp"') == 1
    assert found_in('chosen.barrier.name != present.barrier.name or chosen.kind == "bsp"') == 0
