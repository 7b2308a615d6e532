"""What importing the web process does."""

import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT

PROGRAM = """
import gc, sys
import controlplane.config.asgi
print("frontend.urls" in sys.modules, gc.get_stats()[2]["collections"], gc.isenabled(), gc.get_freeze_count() > 0)
"""


def test_web_imports_all_pages_without_one_full_pass_of_the_collector(tmp_path: Path) -> None:
    environment = {**os.environ, "PACELINE_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "0", "True", "True"]
