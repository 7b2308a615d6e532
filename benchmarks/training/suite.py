"""Live experiments: the papers' systems compared with their baselines, by name.

manage.py bench training [NAME [its options]]

Without a name all of them are run, one after another.
"""

import sys
from importlib import import_module
from typing import Final

EXPERIMENTS: Final = {
    "a-bsp": "benchmarks.training.papers:a-bsp",
    "lb-bsp": "benchmarks.training.papers:lb-bsp",
    "lb-bsp-shared": "benchmarks.training.papers:lb-bsp-shared",
    "psld": "benchmarks.training.psld",
    "psp": "benchmarks.training.papers:psp",
}
"""From a name to the module whose ``main`` runs it, and the argument that it is given first, if any."""


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment that the first argument names, or all; the highest exit code, or 2 for an unknown name."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"usage: bench training [{'|'.join(sorted(EXPERIMENTS))} [its options; --help lists them]]\n")
        return 0
    if not given:
        return max(main([name]) for name in sorted(EXPERIMENTS))
    if given[0] not in EXPERIMENTS:
        sys.stderr.write(f"training: found {given[0]}, expected one of {', '.join(sorted(EXPERIMENTS))}\n")
        return 2
    module, _, first = EXPERIMENTS[given[0]].partition(":")
    code: int = import_module(module).main([*([first] if first else []), *given[1:]])
    return code


if __name__ == "__main__":
    raise SystemExit(main())
