"""Style sheets must not make the browser compute the styles of a whole page again whenever a part of it changes."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.sources import ROOT

SHEETS: Final = sorted((ROOT / "frontend" / "static" / "paceline" / "css").glob("*.css"))


@pytest.mark.parametrize("path", SHEETS, ids=lambda path: path.stem)
def test_no_rule_depends_on_what_the_whole_page_contains(path: Path) -> None:
    """After ``body:has(...) td`` the browser computes the styles of all cells again with each insertion anywhere, and
    Plotly inserts a text, measures it and removes it, hundreds of times per chart.
    """
    wide = re.findall(r"(?:^|[\s,}>])((?:html|body|main|:root|\*|#main)?:has\([^{]*)", path.read_text(), re.MULTILINE)
    assert wide == []
