"""The part of the compose specification that docker-compose.yml uses, as a JSON schema that allows nothing else."""

from typing import Any

DURATION = {"type": "string", "pattern": r"^(\d+(ms|s|m|h))+$"}
STRINGS = {"type": "array", "items": {"type": "string"}}
VARIABLES = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """An object with these properties and no other."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


HEALTHCHECK = closed(
    {
        "test": {
            "type": "array",
            "prefixItems": [{"enum": ["CMD", "CMD-SHELL"]}],
            "items": {"type": "string"},
            "minItems": 2,
        },
        "interval": DURATION,
        "timeout": DURATION,
        "retries": {"type": "integer", "minimum": 1},
        "start_period": DURATION,
    },
    "test",
    "interval",
    "timeout",
    "retries",
)

BUILD = closed({"context": {"type": "string"}, "target": {"type": "string"}, "args": VARIABLES}, "context", "target")

CONDITIONS = ["service_started", "service_healthy", "service_completed_successfully"]
DEPENDENCY = closed({"condition": {"enum": CONDITIONS}}, "condition")

VOLUME = {"type": "string", "pattern": r"^[a-z0-9-]+:/[a-z/]+(:ro)?$"}
MOUNT = closed(
    {
        "type": {"const": "volume"},
        "source": {"type": "string"},
        "target": {"type": "string", "pattern": "^/[a-z/]+$"},
        "read_only": {"type": "boolean"},
        "volume": closed({"subpath": {"type": "string", "pattern": "^[a-z0-9-]+$"}}, "subpath"),
    },
    "type",
    "source",
    "target",
)

NAME = "[a-z0-9/_-]+(:[a-z0-9._-]+)?"
SERVICE = closed(
    {
        "image": {"type": "string", "pattern": rf"^({NAME}|\$\{{[A-Z_]+:-{NAME}\}})$"},
        "build": BUILD,
        "user": {"type": "string"},
        "hostname": {"type": "string"},
        "command": STRINGS,
        "env_file": {
            "type": "array",
            "items": closed({"path": {"type": "string"}, "required": {"type": "boolean"}}, "path"),
        },
        "environment": VARIABLES,
        "ports": {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+:\d+$"}},
        "secrets": STRINGS,
        "volumes": {"type": "array", "items": {"anyOf": [VOLUME, MOUNT]}},
        "depends_on": {"type": "object", "additionalProperties": DEPENDENCY},
        "healthcheck": HEALTHCHECK,
        "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
        "init": {"type": "boolean"},
        "security_opt": STRINGS,
        "cpus": {"type": "number", "exclusiveMinimum": 0},
        "cap_drop": STRINGS,
        "read_only": {"type": "boolean"},
        "tmpfs": {"type": "array", "items": {"type": "string", "pattern": r"^/[a-z/]+(:exec)?$"}},
        "mem_limit": {"type": "string", "pattern": r"^\d+[mg]$"},
        "pids_limit": {"type": "integer", "minimum": 1},
        "networks": STRINGS,
    },
    "image",
    "command",
)

COMPOSE: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {"type": "object", "additionalProperties": SERVICE, "minProperties": 1},
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
        "secrets": {"type": "object", "additionalProperties": closed({"file": {"type": "string"}}, "file")},
        "networks": {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "null"}, closed({"internal": {"type": "boolean"}})]},
        },
    },
    "patternProperties": {"^x-": {}},
    "required": ["name", "services", "volumes", "secrets", "networks"],
    "additionalProperties": False,
}
