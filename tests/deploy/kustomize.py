"""What `kubectl kustomize` makes of deploy/kubernetes, where there is no kubectl that knows components.

Of kustomize it knows what these folders use, and fails at everything else. Where kubectl is there, a test holds both
against each other.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

OF_NO_NAMESPACE = {"Namespace", "ClusterRole", "ClusterRoleBinding", "PersistentVolume", "StorageClass"}
IGNORED = {"apiVersion", "kind"}


def render(folder: Path) -> list[Object]:
    """Every object of a folder with a kustomization."""
    found: list[Object] = []
    _apply(folder, found)
    _name_config_maps(found)
    return found


def _apply(folder: Path, objects: list[Object]) -> None:
    """Put what the folder names to the others, or change those: a component works on what is there before it."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = set(kustomization) - IGNORED - {"resources", "components", *TRANSFORMERS}
    assert not unknown, f"{folder}: {sorted(unknown)}: this renderer does not know it"
    for name in kustomization.get("resources", []):
        path = (folder / name).resolve()
        if path.is_dir():
            own: list[Object] = []
            _apply(path, own)
            objects += own
        else:
            objects += [document for document in yaml.safe_load_all(path.read_text()) if document]
    for name in kustomization.get("components", []):
        _apply((folder / name).resolve(), objects)
    for name, transform in TRANSFORMERS.items():
        if name in kustomization:
            transform(objects, kustomization[name])


def _generate(objects: list[Object], generators: list[Object]) -> None:
    for each in generators:
        data = dict(literal.split("=", 1) for literal in each["literals"])
        if each.get("behavior") == "merge":
            (known,) = _matching(objects, {"kind": "ConfigMap", "name": each["name"]})
            known["data"] |= data
        else:
            document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each["name"]}, "data": data}
            objects.append({**document, GENERATED: True})


def _patch(objects: list[Object], patches: list[Object]) -> None:
    for each in patches:
        found = _matching(objects, each["target"])
        assert found, f"no object for the patch of {each['target']}"
        for target in found:
            for change in yaml.safe_load(each["patch"]):
                _change(target, **copy.deepcopy(change))


def _change(target: Any, *, op: str, path: str, value: Any) -> None:
    """One step of RFC 6902."""
    *parents, last = (key.replace("~1", "/") for key in path.strip("/").split("/"))
    for key in parents:
        target = target[int(key)] if isinstance(target, list) else target[key]
    if isinstance(target, list) and op == "add":
        target.insert(len(target) if last == "-" else int(last), value)
    elif isinstance(target, list):
        target[int(last)] = value
    else:
        assert (op, last in target) in {("add", False), ("add", True), ("replace", True)}, f"{op} {path}"
        target[last] = value


def _set_namespace(objects: list[Object], namespace: str) -> None:
    accounts = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    for each in objects:
        if each["kind"] == "Namespace":
            each["metadata"]["name"] = namespace
        elif each["kind"] not in OF_NO_NAMESPACE:
            each["metadata"]["namespace"] = namespace
        for subject in each.get("subjects", []):
            if subject["kind"] == "ServiceAccount" and subject["name"] in accounts | {"default"}:
                subject["namespace"] = namespace


def _label(objects: list[Object], labels: list[Object]) -> None:
    for each in labels:
        assert set(each) == {"pairs", "includeTemplates"}
        for document in objects:
            for metadata in _metadata(document):
                metadata["labels"] = {**metadata.get("labels", {}), **each["pairs"]}


def _metadata(document: Object) -> Iterator[Object]:
    """That of the object, and of what it makes of templates."""
    yield document["metadata"]
    spec = document.get("spec", {})
    if "spec" in spec.get("template", {}):
        yield spec["template"].setdefault("metadata", {})
    for claim in spec.get("volumeClaimTemplates", []):
        yield claim["metadata"]


def _tag(objects: list[Object], images: list[Object]) -> None:
    for document in objects:
        pod = document.get("spec", {}).get("template", {}).get("spec", {})
        for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
            for each in images:
                if container["image"].partition(":")[0] == each["name"]:
                    version = f"@{each['digest']}" if "digest" in each else f":{each['newTag']}"
                    container["image"] = each["name"] + version


def _replicate(objects: list[Object], replicas: list[Object]) -> None:
    for each in replicas:
        for kind in ("Deployment", "StatefulSet"):
            for document in _matching(objects, {"kind": kind, "name": each["name"]}):
                document["spec"]["replicas"] = each["count"]


def _matching(objects: list[Object], target: Object) -> list[Object]:
    assert set(target) == {"kind", "name"}, target
    return [each for each in objects if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"])]


def _name_config_maps(objects: list[Object]) -> None:
    """Generated ones are named by what is in them, so that pods are replaced when that changes."""
    for each in objects:
        if each.pop(GENERATED, False):
            before = each["metadata"]["name"]
            after = f"{before}-{hashlib.sha256(json.dumps(each, sort_keys=True).encode()).hexdigest()[:10]}"
            each["metadata"]["name"] = after
            _rename(objects, before, after)


def _rename(node: Any, before: str, after: str) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"configMapRef", "configMap", "configMapKeyRef"} and value.get("name") == before:
                value["name"] = after
            _rename(value, before, after)
    elif isinstance(node, list):
        for value in node:
            _rename(value, before, after)


GENERATED = "(generated)"
TRANSFORMERS: dict[str, Callable[[list[Object], Any], None]] = {
    "configMapGenerator": _generate,
    "patches": _patch,
    "namespace": _set_namespace,
    "labels": _label,
    "images": _tag,
    "replicas": _replicate,
}
"""In kustomize's order."""
