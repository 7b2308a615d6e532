"""``manage.py bench overlay``: PSP on a structured overlay of up to 10,000 nodes, in virtual time.

How good the estimate of the number of nodes is, how even random peers are, how many messages a step takes, and what
that gains against no sampling at all. Fails where the estimate misses its law, or a lookup takes more than log2 hops.

Neighbours on a ring share most of the gaps that their estimates are made of, so that one small ring has few independent
ones: estimates and hops are those of several rings.
"""

import argparse
import math
import random
import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.tables import say
from controlplane.simulator.overlay.progress import Crowd, course_of, in_lockstep
from controlplane.simulator.overlay.ring import SUCCESSORS, Ring

SIZES: Final = (100, 1_000, 10_000)
SAMPLES: Final = (0, 1, 2, 4, 8)
HELD: Final = (1, 4)
ASKED: Final = 1_000
"""Nodes of each ring whose estimate is looked at."""
RINGS: Final = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 if a law was missed."""
    parser = argparse.ArgumentParser(prog="manage.py bench overlay", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=list(SIZES), help="default: 100 1000 10000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0, help="of virtual time (default: %(default)s)")
    parser.add_argument("--rings", type=int, default=RINGS, help="of each size (default: %(default)s)")
    options = parser.parse_args(arguments)
    missed = rings(options.nodes, range(options.seed, options.seed + options.rings))
    say("")
    _courses(options.nodes, options.seed, options.seconds)
    for sentence in missed:
        say(f"missed: {sentence}")
    return 1 if missed else 0


def rings(sizes: Sequence[int], seeds: Sequence[int]) -> list[str]:
    """Print what the rings of each size are like, of all seeds together; the laws that they miss."""
    missed = []
    say("| nodes | hops per lookup, mean (max) | log2(n)/2 + 1 | estimate of n, median error | 95 % within | law |")
    say("|---|---|---|---|---|---|")
    for nodes in sizes:
        hops: list[int] = []
        errors: list[float] = []
        for seed in seeds:
            ring, chance = Ring.drawn(nodes, seed), random.Random(seed)
            hops += [ring.random_peer(chance.randrange(nodes), chance, even=False).hops for _ in range(ASKED)]
            errors += [abs(ring.estimate(node) / nodes - 1) for node in chance.sample(range(nodes), min(nodes, ASKED))]
        errors.sort()
        wide, law = errors[int(0.95 * len(errors))], 2 / math.sqrt(SUCCESSORS - 2)
        expected = 0.5 * math.log2(nodes) + 1
        mean, median = statistics.fmean(hops), statistics.median(errors)
        say(f"| {nodes:,} | {mean:.1f} ({max(hops)}) | {expected:.1f} | {median:.0%} | {wide:.0%} | {law:.0%} |")
        if wide > 1.5 * law:
            missed.append(f"of {nodes} nodes, 5 % are off by more than {wide:.0%}, expected {law:.0%}")
        if mean > math.log2(nodes):
            missed.append(f"a lookup among {nodes} nodes takes {mean:.1f} hops")
    return missed


def _courses(sizes: list[int], seed: int, seconds: float) -> None:
    say("| nodes | sample | iterations | times bsp | spread | messages per step |")
    say("|---|---|---|---|---|---|")
    for nodes in sizes:
        bsp = in_lockstep(Crowd(nodes=nodes, seconds=seconds, seed=seed))
        say(f"| {nodes:,} | all (bsp) | {bsp:.1f} | 1 | 0 | |")
        for held in (False, True):
            for sample in SAMPLES if not held else HELD:
                course = course_of(Crowd(nodes=nodes, sample=sample, held=held, seconds=seconds, seed=seed))
                name = f"{sample}, held" if held else f"{sample}" if sample else "0 (asp)"
                say(
                    f"| {nodes:,} | {name} | {course.mean:.1f} | {course.mean / bsp:.2f} | {course.spread:.2f}"
                    f" | {course.messages_per_step:.1f} |"
                )


if __name__ == "__main__":
    raise SystemExit(main())
