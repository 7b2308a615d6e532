"""Pages request modules together with those that they import."""

import re

import pytest
from django.template import Context, Template

from frontend.modules import FOLDER, IMPORT, SOURCES, with_imports

NAMED = re.compile(r"""["'`]\./([^"'`]+)\.js["'`]""")
COMMENT = re.compile(r"^\s*//.*$|/\*.*?\*/", re.MULTILINE | re.DOTALL)


def test_a_page_requests_a_module_together_with_all_that_it_imports() -> None:
    found = with_imports("keys", "totals")
    assert found == ("keys", "totals", "preferences", "search", "shortcuts", "elements", "actions", "rest")


def test_the_imports_of_every_module_are_known() -> None:
    """An import over several lines, one without names, or ``import()`` would be requested late, and in containers it
    would run the module twice: only imports of this form get hashed names.
    """
    for path in SOURCES.glob("*.js"):
        code = COMMENT.sub("", path.read_text())
        assert NAMED.findall(code) == IMPORT.findall(code), path.name
        assert set(IMPORT.findall(code)) <= set(with_imports(path.stem)), path.name


def test_a_module_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.js"):
        with_imports("nothing")


def test_a_tag_names_each_module_once() -> None:
    drawn = Template("{% load paceline %}{% module_preloads 'keys' 'search' %}").render(Context())
    names = re.findall(rf'<link rel="modulepreload" href="[^"]*/{FOLDER}/(\w+)\.js">', drawn)
    assert names == list(with_imports("keys", "search"))
    assert drawn.count("<link") == len(names) == len(set(names))
