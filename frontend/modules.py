"""Lists the modules that a script imports, so that a page can request all of them at once.

Otherwise a browser learns of a module only when it has received the one that imports it.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = "paceline/js"
SOURCES: Final = Path(__file__).parent / "static" / FOLDER
IMPORT: Final = re.compile(r'^import [^;]* from "\./(\w+)\.js";', re.MULTILINE)


@cache
def with_imports(*names: str) -> tuple[str, ...]:
    """These modules and all that they import, directly or not, each once.

    Raises:
        FileNotFoundError: if there is no module of that name.
    """
    found: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop(0)
        if name not in found:
            found[name] = None
            pending += IMPORT.findall((SOURCES / f"{name}.js").read_text())
    return tuple(found)
