"""The data plane: transfers, the cost of moving blocks, and sums without servers; each compared with a reference in the
same run.

    manage.py bench dataplane [--rounds 5] [--transfers] [--json]

First, blocks through one and two parameter servers, against bare socket loops: push, pull, both.

Four worker processes on loopback, a thread per server in each. *Bare* moves the same bytes in the same order over the
same kind of sockets and threads, and does nothing with them. *Server* is the real one: frames, quorums of all workers,
aggregation, the optimizer's step, versions; *encrypted* is that over TLS. Rounds of all alternate, so that other load
on the machine meets all; a figure is the median of the rounds' ratios, for *encrypted* relative to *server*. Target:
0.8 for push and pull together, through one server and through two, without encryption.

Then the pause of a change of placement beside a restart from a checkpoint, by real jobs (``bench training psld
--pause``), and a step without servers beside one of DistributedDataParallel (``bench allreduce``).
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.dataplane import allreduce
from benchmarks.dataplane.transport import BAR, ENCRYPTED, KINDS, Plan, running
from benchmarks.tables import say
from benchmarks.training import psld

ALL = (*KINDS, ENCRYPTED)
OPERATIONS = ("push", "pull", "both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One operation through so many servers; GB/s of payload over all workers, medians over the rounds."""

    servers: int
    operation: str
    bare_gb_s: float
    server_gb_s: float
    ratio: float
    ratios: list[float]
    encrypted_gb_s: float
    encrypted_ratio: float
    """Of the throughput with TLS to that without."""
    cpu_s_per_gb: dict[str, float]
    """Of all processes, by kind."""


def measure(plan: Plan, servers: int, tell: Callable[[str], None]) -> list[Row]:
    """All operations through so many servers. The blocks of ``plan`` are divided among them."""
    each = Plan(workers=plan.workers, blocks=plan.blocks // servers, iterations=plan.iterations, rounds=plan.rounds)
    rows = []
    with running(each, servers) as processes:
        for operation in OPERATIONS:
            one_way = each.round_bytes * servers / 2e9
            gigabytes = one_way * (2 if operation == "both" else 1)
            for kind in ALL:
                processes.run(kind, operation)  # touch memory and start threads before the measurement
            rounds = [{kind: processes.run(kind, operation) for kind in ALL} for _ in range(plan.rounds)]
            times = [[each[kind].wall_s for kind in KINDS] for each in rounds]
            ratios = [round(bare / server, 3) for bare, server in times]
            encrypted = [each[ENCRYPTED].wall_s for each in rounds]
            cpu_s = {kind: median(each[kind].cpu_s for each in rounds) for kind in ALL}
            rows.append(
                Row(
                    servers=servers,
                    operation=operation,
                    bare_gb_s=round(gigabytes / median(bare for bare, _ in times), 3),
                    server_gb_s=round(gigabytes / median(server for _, server in times), 3),
                    ratio=round(median(ratios), 3),
                    ratios=ratios,
                    encrypted_gb_s=round(gigabytes / median(encrypted), 3),
                    encrypted_ratio=round(
                        median(server / tls for (_, server), tls in zip(times, encrypted, strict=True)), 3
                    ),
                    cpu_s_per_gb={kind: round(seconds / gigabytes, 3) for kind, seconds in cpu_s.items()},
                )
            )
            tell(_line(rows[-1]))
    return rows


def _line(row: Row) -> str:
    where = f"{row.servers} server{'s' if row.servers > 1 else ''}"
    plain = f"bare {row.bare_gb_s:6.2f} GB/s, server {row.server_gb_s:6.2f}: {row.ratio:.2f}"
    cpu = ", ".join(f"{row.cpu_s_per_gb[kind]:.2f}" for kind in (KINDS[1], ENCRYPTED))
    encrypted = f"encrypted {row.encrypted_gb_s:6.2f}: {row.encrypted_ratio:.2f} (CPU s/GB {cpu})"
    return f"{where:9} {row.operation:5} {plain}; {encrypted}"


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; 0 if the bar is reached, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=8, help="blocks of 4 MiB, divided among the servers")
    parser.add_argument("--iterations", type=int, default=4, help="per round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--transfers", action="store_true", help="only push and pull")
    parser.add_argument("--json", action="store_true", help="print a JSON document for each part and nothing else")
    given = parser.parse_args(arguments)
    plan = Plan(workers=given.workers, blocks=given.blocks, iterations=given.iterations, rounds=given.rounds)
    rows = [row for servers in (1, 2) for row in measure(plan, servers, _nothing if given.json else say)]
    missed = [row for row in rows if row.operation == "both" and row.ratio < BAR]
    document: dict[str, Any] = {"rows": [asdict(row) for row in rows], "bar": BAR, "reached": not missed}
    say(json.dumps(document) if given.json else f"push and pull, bar {BAR}: {'missed' if missed else 'reached'}")
    if given.transfers:
        return 1 if missed else 0
    options = ["--json"] if given.json else []
    return max(1 if missed else 0, psld.main(["--pause", "--iterations", "30", *options]), allreduce.main(options))


def _nothing(line: str) -> None:
    pass


if __name__ == "__main__":
    raise SystemExit(main())
