"""Enrols a machine: exchanges an enrolment token, or its pod's service account token, for the machine's own credential.

Neither appears in a log or a message.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from controlplane.protocol.addresses import ControlPlane
from workers.http import http_client
from workers.state import Credential

TIMEOUT_S = 15.0
HOW_TO_GET_ONE = "make one with: python manage.py enroll"


class EnrolmentError(RuntimeError):
    """The machine could not be enrolled; the message is one sentence for the user."""


def read_token(argument: str | None, environment: Mapping[str, str]) -> str | None:
    """Read the token: the argument itself, standard input for ``-``, a file for ``@file``, else ``PACELINE_TOKEN``.

    Raises:
        EnrolmentError: if the named source is empty.
    """
    if argument is None:
        return environment.get("PACELINE_TOKEN", "").strip() or None
    if argument == "-":
        return _nonempty(sys.stdin.readline(), "standard input")
    if argument.startswith("@"):
        try:
            return _nonempty(Path(argument[1:]).read_text(), argument[1:])
        except (OSError, UnicodeDecodeError) as error:
            raise EnrolmentError(f"no token could be read from {argument[1:]}: {error}") from None
    return _nonempty(argument, "the command line")


def enrol(plane: ControlPlane, token: str, name: str) -> Credential:
    """Exchange ``token`` for a credential for the agent ``name``.

    Raises:
        EnrolmentError: if the control plane cannot be reached, refuses, or sends an invalid reply.
    """
    try:
        with http_client(plane, TIMEOUT_S) as client:
            response = client.post(plane.http("/api/v1/agents/enrol"), json={"token": token, "name": name})
    except httpx.TransportError as error:
        raise EnrolmentError(
            f"no control plane answers at {plane.url} ({error}): start it with: python manage.py up, "
            "or correct the address"
        ) from None
    if response.status_code != httpx.codes.CREATED:
        cure = "" if token.count(".") == 2 else f": {HOW_TO_GET_ONE}"  # service account tokens are not created there
        raise EnrolmentError(_refusal(plane, name, response, cure))
    answer = _document(response)
    agent, secret = answer.get("agent"), answer.get("credential")
    if not isinstance(agent, int) or not isinstance(secret, str) or not secret:
        raise EnrolmentError(f"{plane.url} did not answer as a control plane does: is the address right?")
    return Credential(agent=agent, name=name, url=plane.url, secret=secret)


def _refusal(plane: ControlPlane, name: str, response: httpx.Response, cure: str) -> str:
    status, answer = response.status_code, _document(response)
    message = str(answer.get("detail") or answer.get("title") or f"HTTP {status}")
    if status == httpx.codes.NOT_FOUND:
        return f"{plane.url} has no enrolment: is it the address of a Paceline control plane?"
    if status == httpx.codes.CONFLICT:
        return f"the name {name} cannot be had ({message}): join under another --name"
    if status >= httpx.codes.INTERNAL_SERVER_ERROR or status == httpx.codes.TOO_MANY_REQUESTS:
        return f"{plane.url} cannot enrol anybody now ({message}): try again"
    cure = "" if "manage.py enroll" in message else cure  # the message may already contain the cure
    return f"the control plane refused the enrolment ({message}){cure}"


def _document(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _nonempty(text: str, where: str) -> str:
    token = text.strip()
    if not token:
        raise EnrolmentError(f"there is no token in {where}: {HOW_TO_GET_ONE}")
    return token
