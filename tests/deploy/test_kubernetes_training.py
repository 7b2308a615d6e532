"""deploy/kubernetes/training, jobset and trainjob: valid, safe, and ranks that meet, attach and are paced."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import ranks
from tests.deploy.images import bare_environment, unpack
from tests.deploy.kubernetes import FOLDER, named
from tests.deploy.policies import Target, lets_out
from tests.deploy.ranks import WORLD, Pods
from tests.deploy.reading import ROOT
from tests.integration.test_jobs import reports
from tests.support.stack import Stack

EVERY = ("training", "jobset", "trainjob")
DELETE = "delete --ignore-not-found --cascade=foreground job/training secret/training"
EPOCHS = 10
EVEN_S = 2 * 64 / 250
"""An iteration of two batches of 64 where the slowest of the emulated machines has as many as the others."""


def restricted(pod: dict[str, Any], container: dict[str, Any]) -> bool:
    """Whether that is what the *restricted* pod security standard asks for, and a root that no one writes to."""
    security = pod["securityContext"]
    return (
        (security["runAsNonRoot"], security["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
        and security["runAsUser"] > 0
        and container["securityContext"]
        == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        and {each["mountPath"] for each in container["volumeMounts"]} == {"/tmp", "/dev/shm"}
        and {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    )


@pytest.mark.parametrize(
    ("kind", "model"), [("JobSet", "JobsetV1alpha2JobSet"), ("TrainJob", "TrainerV1alpha1TrainJob")]
)
def test_custom_objects_follow_the_schemas_that_kubeflow_publishes(kind: str, model: str) -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models", reason="kubeflow-trainer-api is not installed")
    document = named(kind.lower(), kind)["training"]
    assert getattr(models, model).from_dict(document).to_dict() == document, "a field that the schema does not have"


def test_what_a_job_set_holds_is_a_job_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    (each,) = named("jobset", "JobSet")["training"]["spec"]["replicatedJobs"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "training"}, "spec": each["template"]["spec"]}
    validate(job, "1.33", strict=True)
    for overlay in ("jobset", "trainjob"):
        validate(named(overlay, "NetworkPolicy")["ranks"], "1.33", strict=True)


def test_pods_of_all_three_may_do_no_more_than_the_restricted_standard_lets_them() -> None:
    for overlay in ("training", "jobset"):
        pod = ranks.pod_of(overlay)
        assert restricted(pod, ranks.container_of(overlay)), overlay
        assert pod["automountServiceAccountToken"] is False
    (patch,) = named("trainjob", "TrainJob")["training"]["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (node["name"], container["name"]) == ("node", "node")
    assert restricted(pod, container)


def test_the_numbers_of_ranks_agree_and_rank_0_is_where_the_others_look_for_it() -> None:
    job = named("training", "Job")["training"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", WORLD, WORLD)
    assert (job["template"]["spec"]["restartPolicy"], job["backoffLimitPerIndex"]) == ("Never", 3)
    (headless,) = named("training", "Service").values()
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["selector"] == {"batch.kubernetes.io/job-name": "training"}
    found = ranks.environment("training", 2, {})
    assert found["MASTER_ADDR"] == f"training-0.{headless['metadata']['name']}"
    assert job["template"]["spec"]["subdomain"] == headless["metadata"]["name"]
    assert (found["RANK"], found["WORLD_SIZE"], found["PACELINE_WORLD"]) == ("2", "4", "4")
    spec = named("jobset", "JobSet")["training"]["spec"]
    (each,) = spec["replicatedJobs"]
    assert (each["replicas"], each["template"]["spec"]["completions"]) == (1, WORLD)
    assert spec["network"]["subdomain"] == "training"
    assert ranks.environment("jobset", 0, {})["MASTER_ADDR"] == f"training-{each['name']}-0-0.training"
    assert ranks.container_of("trainjob")["numNodes"] == WORLD


def test_the_pods_of_a_job_set_are_those_of_the_indexed_job_but_for_the_name_of_rank_0() -> None:
    theirs, ours = ranks.container_of("jobset"), ranks.container_of("training")
    for each in (theirs, ours):
        each["env"] = [variable for variable in each["env"] if variable["name"] != "MASTER_ADDR"]
    assert theirs == ours


@pytest.mark.parametrize(("overlay", "kind"), [("training", "Job"), ("jobset", "JobSet"), ("trainjob", "TrainJob")])
def test_the_commands_remove_what_the_next_run_could_not_replace(overlay: str, kind: str) -> None:
    (name,) = named(overlay, kind)
    for file in (ROOT / "docs" / "clusters.md", FOLDER / overlay / "kustomization.yaml"):
        assert f"{kind.lower()}/{name}" in file.read_text(), file
    for file in (ROOT / "docs" / "clusters.md", FOLDER / "training" / "kustomization.yaml"):
        removed, created = (file.read_text().find(verb) for verb in (DELETE, "create secret generic training"))
        assert 0 < removed < created, file


@pytest.mark.parametrize("overlay", EVERY)
def test_only_ranks_reach_ranks_and_no_object_contains_a_secret(overlay: str) -> None:
    policy = named(overlay, "NetworkPolicy")["ranks"]["spec"]
    assert policy["ingress"] == [{"from": [{"podSelector": {"matchLabels": {"paceline/role": "rank"}}}]}]
    assert named(overlay, "Secret") == {}
    plain = {each["name"] for each in ranks.container_of(overlay)["env"] if "value" in each}
    assert not {"PACELINE_TOKEN", "PACELINE_JOB", "PACELINE_URL"} & plain


@pytest.mark.parametrize(
    ("overlay", "policy", "role"),
    [(overlay, "ranks", "rank") for overlay in EVERY]
    + [(overlay, "agents", "agent") for overlay in ("agents", "agents-by-account")],
)
def test_agents_and_ranks_reach_their_control_plane_at_either_address_and_nothing_else_of_paceline(
    overlay: str, policy: str, role: str
) -> None:
    found = named(overlay, "NetworkPolicy")[policy]
    web = {"app.kubernetes.io/name": "web", "paceline/role": "controlplane"}
    stores = {"paceline/role": "store"}
    ingress_controller = {"app.kubernetes.io/name": "ingress"}
    assert lets_out(found, Target(8000, web)), "http://web:8000"
    assert lets_out(found, Target(443)), "https:// of a load balancer, or of another place"
    assert lets_out(found, Target(443, ingress_controller, in_our_namespace=False)), "https:// of the same cluster"
    assert lets_out(found, Target(8443, ingress_controller, in_our_namespace=False))
    assert lets_out(found, Target(53, {"k8s-app": "kube-dns"}, in_our_namespace=False, protocol="UDP"))
    assert lets_out(found, Target(29_500, {"paceline/role": role}))
    assert not lets_out(found, Target(29_500, {"paceline/role": role}, in_our_namespace=False))
    assert not lets_out(found, Target(80)), "where clouds keep the credentials of a node"
    assert not any(lets_out(found, Target(port, stores)) for port in (5432, 6379))


@pytest.fixture
def pods(stack: Stack, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pods]:
    with ExitStack() as stop:
        found = Pods(request.param, stack, tmp_path, epochs=EPOCHS, batching="lb-bsp-gpu")
        stop.callback(found.end)
        yield found


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("pods", "launcher"),
    [("training", "kubernetes"), pytest.param("trainjob", "kubeflow", marks=pytest.mark.thorough)],
    indirect=["pods"],
)
def test_pods_train_one_script_that_is_paced(stack: Stack, pods: Pods, launcher: str) -> None:
    texts = pods.wait()
    epochs = re.findall(r"accuracy ([\d.]+), ([\d.]+) s/iteration", "".join(texts))
    assert len(epochs) == EPOCHS, texts[0]
    number = pods.job["id"]
    shares = stack.rows(f"/api/v1/jobs/{number}/decisions?kind=set-shares")
    rows = stack.rows(f"/api/v1/jobs/{number}/processes")
    stack.ask("POST", f"/api/v1/jobs/{number}/actions/finish", json={"exit_code": 0})
    done = stack.await_job(number, "succeeded")
    assert {row["environment"]["launcher"] for row in rows} == {launcher}
    assert [row["index"] for row in rows] == [*range(WORLD)]
    assert {rank for rank, _ in reports(stack, number)} == {*range(WORLD)}
    assert shares
    assert min(float(seconds) for _, seconds in epochs[-4:]) < 0.7 * EVEN_S, epochs
    assert float(epochs[-1][0]) > 0.8
    assert (done["generation"], done["launch"]) == (1, "attached")


def test_the_image_holds_the_script_and_all_that_it_imports(tmp_path: Path) -> None:
    unpack("training", tmp_path)
    assert (tmp_path / "examples" / "train_paceline.py").read_text() == (
        ROOT / "examples" / "train_paceline.py"
    ).read_text()
    command = [sys.executable, "examples/train_paceline.py", "--help"]
    done = subprocess.run(
        command, cwd=tmp_path, env=bare_environment() | {"PYTHONPATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
