"""Parses the emulation of a machine's slots from the command line."""

from pathlib import Path

from msgspec.structs import replace

from controlplane.protocol.emulation import Competitor, Emulation, parse_emulation, read_trace
from controlplane.protocol.parts import SpecError


class UsageError(ValueError):
    """Incompatible options; the message has the cure."""


def machines_of(emulate: str | None, competitor: str | None, slots: int | None) -> list[Emulation | None]:
    """Return one entry per slot: what it emulates, if anything.

    Raises:
        UsageError: if an option is invalid, or the numbers of machines and slots differ.
    """
    rival = None if competitor is None else _competitor(competitor)
    if emulate is None:
        alone = None if rival is None else Emulation(competitor=rival)
        return [alone] * (1 if slots is None else slots)
    machines = [_machine(part.strip()) for part in emulate.split(",")]
    wanted = len(machines) if slots is None else slots
    if len(machines) == 1:
        machines *= wanted
    if len(machines) != wanted:
        raise UsageError(f"--emulate names {len(machines)} machines for --slots {wanted}: give one, or one per slot")
    return [machine if rival is None else replace(machine, competitor=rival) for machine in machines]


def _machine(text: str) -> Emulation:
    try:
        if text.startswith("@"):
            points = read_trace(Path(text[1:]).read_text(), "--emulate")
            return parse_emulation({"trace": points}, "--emulate")
        if text.startswith("x"):
            return parse_emulation({"slower": float(text[1:])}, "--emulate")
        return parse_emulation({"samples_per_second": float(text)}, "--emulate")
    except OSError as error:
        raise UsageError(f"--emulate {text!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--emulate {text!r}: found bytes that are not text, expected lines of a CSV file") from None
    except SpecError as error:
        found = f"found {error.found!r}, expected " if isinstance(error.found, str) else ""
        raise UsageError(f"--emulate {text!r}: {found}{error.expected}") from None
    except ValueError:
        raise UsageError(f"--emulate {text!r}: expected samples/s like 1000, x3 or @trace.csv") from None


def _competitor(text: str) -> Competitor:
    """``BEGINS,ENDS,TAKES[,SEED]``: a competing process starts or stops on each slot with these probabilities."""
    values = text.split(",")
    try:
        if len(values) not in (3, 4):
            raise ValueError
        begins, ends, takes = map(float, values[:3])
        seed = int(values[3]) if len(values) == 4 else 0
        document = {"competitor": {"begins": begins, "ends": ends, "takes": takes, "seed": seed}}
        rival = parse_emulation(document, "--competitor").competitor
    except SpecError as error:
        raise UsageError(f"--competitor {text!r}: {error.expected}") from None
    except ValueError:
        raise UsageError(f"--competitor {text!r}: expected BEGINS,ENDS,TAKES[,SEED] like 0.1,0.1,0.5") from None
    assert rival is not None
    return rival
