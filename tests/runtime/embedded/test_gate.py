"""Services that are started early wait for the tables, and only then."""

import threading
from pathlib import Path

import pytest

from controlplane.runtime.embedded.gate import VARIABLE, await_gate, closed_gate


def test_a_service_waits_until_the_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_gate(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        service = threading.Thread(target=await_gate, daemon=True)
        service.start()
        service.join(0.1)
        assert service.is_alive()
    service.join(60)
    assert not service.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_the_gate_opens_if_the_tables_cannot_be_migrated(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no space"), closed_gate(tmp_path):
        raise OSError("no space")
    assert list(tmp_path.iterdir()) == []


def test_without_a_gate_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    await_gate()
