"""What an agent keeps on disk between its lives."""

from pathlib import Path

import pytest

from tests.workers.agent.values import process
from workers.state import AgentState, Credential, StateError

CREDENTIAL = Credential(agent=3, name="box", url="http://127.0.0.1:8000", secret="topsecret")


def state_of(root: Path, *, url: str = CREDENTIAL.url, name: str = "box") -> AgentState:
    state = AgentState(root, url=url, name=name)
    state.open()
    return state


def test_a_credential_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.keep_credential(CREDENTIAL)
    assert state.read_credential() == CREDENTIAL
    assert state.credential_file.stat().st_mode & 0o777 == 0o600
    assert state.folder.stat().st_mode & 0o777 == 0o700
    assert not [file for file in state.folder.iterdir() if file.name.startswith("tmp")]


def test_credentials_are_kept_apart_by_address_and_name(tmp_path: Path) -> None:
    state_of(tmp_path).keep_credential(CREDENTIAL)
    assert state_of(tmp_path, name="other").read_credential() is None
    assert state_of(tmp_path, url="http://127.0.0.1:9000").read_credential() is None


def test_a_credential_does_not_show_its_secret() -> None:
    assert "topsecret" not in f"{CREDENTIAL} {CREDENTIAL!r}"


def test_a_credential_that_others_can_read_is_refused(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    state.keep_credential(CREDENTIAL)
    state.credential_file.chmod(0o644)
    with pytest.raises(StateError, match=r"can be read by others \(mode 644\): chmod 600 it"):
        state.read_credential()


@pytest.mark.parametrize("found", [b"{", b'{"name": "\xff"}'], ids=["cut short", "not UTF-8"])
def test_a_damaged_credential_is_refused_with_the_cure(tmp_path: Path, found: bytes) -> None:
    state = state_of(tmp_path)
    state.keep_credential(CREDENTIAL)
    state.credential_file.write_bytes(found)
    with pytest.raises(StateError, match="remove it and enrol again"):
        state.read_credential()


def test_a_second_agent_of_the_same_name_is_turned_away_until_the_first_has_ended(tmp_path: Path) -> None:
    first = state_of(tmp_path)
    with pytest.raises(StateError, match="an agent named box is already running"):
        state_of(tmp_path)
    first.close()
    state_of(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match=r"cannot be written .*choose another with --state-dir"):
        state_of(tmp_path / "file" / "below")


def test_begun_instances_are_kept_until_the_next_enrolment(tmp_path: Path) -> None:
    state = state_of(tmp_path)
    assert state.read_started() == set()
    state.store_started([process(0), process(1)])
    assert state.read_started() == {process(0), process(1)}
    state.keep_credential(CREDENTIAL)
    assert state.read_started() == set()
