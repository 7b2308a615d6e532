"""The control plane and token that a command uses: as given, otherwise those of the one that runs on this machine."""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from paceline.cli.delegated import SERVER
from paceline.cli.errors import Refusal
from paceline.cli.places import MANAGE, environment, with_data_folder
from paceline.client.address import DEFAULT_URL, Address, address
from paceline.client.retries import Patience
from paceline.client.sync import Client
from paceline.errors import PacelineError

SERVICE_USER = "command-line"
KEY_LENGTH = 15
"""The first characters of an API token are its id."""

QUICK = Patience(tries=3)
"""Retries of a command: few, since a user waits for it."""

LET_IN_S = 60.0

NONE_RUNS = f"on this machine none of your control planes runs: start one with `{MANAGE} up`, or name one with --url"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Credentials for a control plane; ``login_link`` is a one-time link for a browser, if made on this machine."""

    address: Address
    login_link: str = ""
    is_own: bool = False
    """Whether the token was created for this command and is revoked when it ends."""


def add_team(parser: ArgumentParser) -> None:
    """Add the option that names the team of a submitted job."""
    parser.add_argument(
        "--team", metavar="NAME", help="the team that owns the job (default: the first that you joined, if any)"
    )


def add_options(parser: ArgumentParser) -> None:
    """Add the options for the address and credentials."""
    parser.add_argument("--url", help="the control plane (default: PACELINE_URL, else the one on this machine)")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="an API token (default: PACELINE_API_TOKEN)")


@contextmanager
def connected(options: Namespace, *, patience: Patience = QUICK) -> Iterator[Client]:
    """Open a client of the control plane that the options name."""
    with opened(find(options, os.environ), patience=patience) as client:
        yield client


@contextmanager
def opened(access: Access, *, patience: Patience = QUICK) -> Iterator[Client]:
    """Open a client with these credentials; a token that was created for the command is revoked at the end."""
    with Client(access.address.url, access.address.token, patience=patience) as client:
        try:
            yield client
        finally:
            if access.is_own:
                with suppress(PacelineError):
                    client.revoke_token(access.address.token[:KEY_LENGTH])


def find(options: Namespace, variables: Mapping[str, str]) -> Access:
    """Find the control plane that the options or the environment name; otherwise the one in this user's data folder.

    Raises:
        Refusal: if a file cannot be read, or no token is available.
    """
    token = read(options.token_file) if options.token_file else variables.get("PACELINE_API_TOKEN", "").strip()
    known = with_data_folder(variables)
    running, url = running_address(known), url_of(options, variables)
    if not token and url.rstrip("/") == running and SERVER.is_installed:
        return let_in(url, known)
    try:
        return Access(address=address(url, token, variables))
    except PacelineError as error:
        is_none_named = not (token or running or options.url or variables.get("PACELINE_URL"))
        raise Refusal(f"{error}; {NONE_RUNS}" if is_none_named else str(error)) from None


def url_of(options: Namespace, variables: Mapping[str, str]) -> str:
    """Return only the control plane's address, for commands that need no API token."""
    named = options.url or variables.get("PACELINE_URL") or running_address(with_data_folder(variables))
    return str(named or DEFAULT_URL)


def running_address(variables: Mapping[str, str]) -> str:
    """The address of the control plane of this user's data folder; empty if none is running."""
    folder = Path(variables["PACELINE_DATA_DIR"])
    try:
        return (folder / "address").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def let_in(url: str, variables: Mapping[str, str]) -> Access:
    """Return a token of the control plane on this machine: read access to its folder already gives access to its
    database.

    Raises:
        Refusal: if the control plane does not issue one.
    """
    command = [
        sys.executable,
        "-m",
        "controlplane.manage",
        "access",
        SERVICE_USER,
        "--role",
        "operator",
        "--token",
        "--json",
    ]
    known = environment(variables)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LET_IN_S, env=known)
    if done.returncode:
        last = (done.stderr.strip() or "without a word").splitlines()[-1]
        raise Refusal(f"no token for {url}: `paceline access {SERVICE_USER}` ended with {done.returncode}: {last}")
    made = json.loads(done.stdout.splitlines()[-1])
    return Access(address=address(url, made["token"], variables), login_link=made["login_link"], is_own=True)


def read(file: Path) -> str:
    """Return the content of a file, such as a token.

    Raises:
        Refusal: if it cannot be read.
    """
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{file}: cannot be read ({error})") from None
