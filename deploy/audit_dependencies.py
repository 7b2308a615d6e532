"""``make supply``: checks installed packages for known vulnerabilities, if an advisory source can be reached.

The exit code is 1 if a package has a known vulnerability. An unreachable source is reported, but is not a failure, so
that a machine without a network can run its tests.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

PATIENCE_S = 300
ANSWER_S = 10


def verdict(document: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The exit code and the message for pip-audit's JSON output."""
    found: Sequence[Mapping[str, Any]] = document.get("dependencies", ())
    faults = [
        f"{each['name']} {each['version']}: {fault['id']}"
        + (f", fixed in {', '.join(fault['fix_versions'])}" if fault.get("fix_versions") else ", no fixed version")
        for each in found
        for fault in each.get("vulns", ())
    ]
    looked_up = sum("vulns" in each for each in found)
    if faults:
        return 1, [f"{len(faults)} known vulnerabilities in installed packages:", *faults]
    if not looked_up:
        return 0, [f"No advisory source was reachable: {len(found)} packages were NOT audited."]
    skipped = len(found) - looked_up
    rest = f"; {skipped} are not known to the advisory source" if skipped else ""
    return 0, [f"{looked_up} packages have no known vulnerabilities{rest}."]


def main(audit: str, packages: str) -> int:
    """Run pip-audit, print the result, and return the exit code."""
    command = [audit, "--path", packages, "--format", "json", "--timeout", str(ANSWER_S), "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        document = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        document = {}
    except ValueError:
        print("\n".join(done.stderr.splitlines()[-1:]))  # noqa: T201
        document = {}
    status, lines = verdict(document)
    print("\n".join(lines))  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
