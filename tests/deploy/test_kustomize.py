"""Our renderer of deploy/kubernetes beside kubectl's."""

import json
import re
from typing import Any

import pytest

from tests.deploy import kubernetes
from tests.deploy.kubernetes import FOLDER, INSTALL_KUBECTL
from tests.deploy.kustomize import render

EVERY = sorted(
    str(path.parent.relative_to(FOLDER))
    for path in FOLDER.rglob("kustomization.yaml")
    if "components" not in path.parts
)


def comparable(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """By kind and name; names by what is in a map are another hash here."""
    text = re.sub(r'"settings-[a-z0-9]{10}"', '"settings"', json.dumps(documents))
    return {f"{each['kind']} {each['metadata']['name']}": each for each in json.loads(text)}


@pytest.mark.skipif(kubernetes.kubectl() is None, reason=INSTALL_KUBECTL)
@pytest.mark.parametrize("overlay", EVERY)
def test_it_renders_what_kubectl_does(overlay: str) -> None:
    assert comparable(render(FOLDER / overlay)) == comparable(kubernetes.rendered_by_kubectl(overlay))


def test_what_it_does_not_know_it_refuses(tmp_path: Any) -> None:
    (tmp_path / "kustomization.yaml").write_text("helmCharts: []\n")
    with pytest.raises(AssertionError, match=r"'helmCharts'.*this renderer does not know it"):
        render(tmp_path)
