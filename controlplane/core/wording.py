"""Numbers of things as sentences have them."""


def number_of(number: int, noun: str) -> str:
    """``1 worker``, ``no workers``, ``3 workers``."""
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def being(number: int) -> str:
    """The verb of so many."""
    return "is" if number == 1 else "are"
