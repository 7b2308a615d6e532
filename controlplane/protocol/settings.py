"""Free-form options of a spec, converted to the struct that declares them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from controlplane.protocol.faults import fault_of
from controlplane.protocol.parts import Part, SpecError


def settings_from(owner: str, kind: type[Part], given: Mapping[str, Any], field: str) -> Any:
    """Convert ``given`` to a ``kind``, with its defaults for missing options.

    Raises:
        SpecError: with the option below ``field``, what was found and what is allowed.
    """
    known = {info.name: info for info in msgspec.structs.fields(kind)}
    for name in given:
        if name not in known:
            allowed = f"an option of {owner}: {', '.join(known)}" if known else f"none: {owner} has no options"
            raise SpecError(f"{field}.{name}", given[name], allowed)
    for name, info in known.items():
        if info.required and name not in given:
            raise SpecError(f"{field}.{name}", None, f"a value: {owner} needs it")
    values = {name: _convert(value, known[name].type, f"{field}.{name}") for name, value in given.items()}
    return kind(**values)


def described(kind: type[Part]) -> dict[str, Any]:
    """The defaults of such options and their JSON schema, as a form or a person needs them."""
    _, components = msgspec.json.schema_components([kind])
    defaults = {
        info.encode_name: info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
        for info in msgspec.structs.fields(kind)
        if not info.required
    }
    return {"defaults": defaults, "schema": components[kind.__name__]}


def _convert(value: object, type_: Any, field: str) -> Any:
    try:
        return msgspec.convert(value, type_, strict=True)
    except msgspec.ValidationError as error:
        raise SpecError(field, value, fault_of(error, type_).expected) from None
