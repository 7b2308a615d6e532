"""How pods join by their service accounts: what a cluster says of a token, and what follows from it."""

import base64
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from controlplane.fleet.cluster import Cluster, MalformedEntry, parse_accounts
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import agent_by_credential
from controlplane.fleet.services import (
    EnrolmentRefused,
    NameTaken,
    agent_connected,
    agent_disconnected,
    agents_remove_absent,
    pod_redeem,
    token_create,
    token_redeem,
)
from controlplane.fleet.token_review import (
    CACHED_S,
    CannotReview,
    Pod,
    Reviewer,
    TokenRefused,
    is_service_account_token,
)
from tests.support.api_server import ApiServer, own_token
from tests.support.certificates import Certificates, make_certificates
from tests.support.rows import hello

ACCOUNTS = parse_accounts("paceline/agents:pool=default,zone=b ml/*")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def api(certificates: Certificates) -> Iterator[ApiServer]:
    with ApiServer(certificates) as server:
        yield server


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reviewer(api: ApiServer, certificates: Certificates, clock: Clock, tmp_path: Path) -> Reviewer:
    token = own_token(tmp_path)
    cluster = Cluster(accounts=ACCOUNTS, api=api.url, ca=certificates.ca, token=token, remove_after=None)
    return Reviewer(cluster, clock)


def refusal(reviewer: Reviewer, token: str) -> str:
    with pytest.raises(TokenRefused) as caught:
        reviewer.review(token)
    return str(caught.value)


def unreviewed(reviewer: Reviewer, token: str) -> str:
    with pytest.raises(CannotReview) as caught:
        reviewer.review(token)
    return str(caught.value)


def test_accounts_are_namespace_account_and_labels() -> None:
    first, second = ACCOUNTS
    assert (str(first), first.labels, str(second), second.labels) == (
        "paceline/agents",
        {"pool": "default", "zone": "b"},
        "ml/*",
        {},
    )
    assert parse_accounts("  ") == []


@pytest.mark.parametrize("entry", ["agents", "a/b:", "a/b:pool", "a/b:=x", "A/b", "a/", "a/b:x=1,y", "*/b", "a/b:x="])
def test_an_entry_of_another_form_is_refused(entry: str) -> None:
    with pytest.raises(MalformedEntry) as caught:
        parse_accounts(f"paceline/agents {entry}")
    assert str(caught.value) == entry


def test_a_pods_token_has_its_account_and_its_name(api: ApiServer, reviewer: Reviewer) -> None:
    token = api.issue("paceline", "agents", "agents-0")
    assert is_service_account_token(token)
    assert not is_service_account_token(token_form())
    pod = reviewer.review(token)
    assert (pod.identity, pod.account.labels) == ("paceline/agents/agents-0", {"pool": "default", "zone": "b"})
    assert reviewer.review(api.issue("ml", "anything", "x-1")).identity == "ml/anything/x-1"


def token_form() -> str:
    return "k" * 43


def test_who_holds_a_token_is_decided_by_the_api_server_and_not_by_the_token(
    api: ApiServer, reviewer: Reviewer
) -> None:
    token = api.issue("paceline", "agents", "agents-0")
    api.tokens[token]["username"] = "system:serviceaccount:other:agents"
    assert "'system:serviceaccount:other:agents' may not join" in refusal(reviewer, token)


def test_tokens_of_other_accounts_and_for_other_audiences_are_refused_without_asking(
    api: ApiServer, reviewer: Reviewer
) -> None:
    said = refusal(reviewer, api.issue("paceline", "default", "agents-0"))
    assert said == (
        "'system:serviceaccount:paceline:default' may not join; PACELINE_KUBERNETES_ACCOUNTS lists paceline/agents"
        " ml/*: run the agent as one of these, or add paceline/default"
    )
    said = refusal(reviewer, api.issue("paceline", "agents", "agents-0", audience="https://kubernetes.default.svc"))
    assert said.startswith("this service-account token is for the audience 'https://kubernetes.default.svc', expected")
    assert said.endswith("project a token for it into the pod with serviceAccountToken: {audience: paceline}")
    assert api.reviews == []


def encoded(claims: bytes) -> str:
    return base64.urlsafe_b64encode(claims).decode().rstrip("=")


@pytest.mark.parametrize(
    "claims",
    [
        "%%%",
        "e30",
        "bnVsbA",
        *map(encoded, (b"[1]", b'{"aud": 5}', b'{"aud": true}', b'{"aud": {"a": 1}}', b"[" * 2000)),
    ],
)
def test_what_is_no_token_is_refused_without_asking(api: ApiServer, reviewer: Reviewer, claims: str) -> None:
    assert refusal(reviewer, f"a.{claims}.c")
    assert api.reviews == []


def test_a_forged_token_is_refused_by_the_api_server(api: ApiServer, reviewer: Reviewer) -> None:
    good = api.issue("paceline", "agents", "agents-0")
    said = refusal(reviewer, good + "x")
    assert said.startswith("the API server does not accept this service-account token ([invalid bearer token")
    assert "join with @FILE" in said


def test_a_token_that_is_bound_to_no_pod_is_refused(api: ApiServer, reviewer: Reviewer) -> None:
    assert "is not bound to a pod: have the kubelet project" in refusal(reviewer, api.issue("ml", "agents", None))


def test_an_api_server_that_names_no_audience_is_not_believed(api: ApiServer, reviewer: Reviewer) -> None:
    token = api.issue("paceline", "agents", "agents-0")
    api._review = lambda body: {"authenticated": True, "user": api.tokens[token]}  # type: ignore[method-assign]
    assert "did not confirm the audience 'paceline'" in refusal(reviewer, token)


def test_an_answer_counts_for_ten_seconds_and_no_longer(api: ApiServer, reviewer: Reviewer, clock: Clock) -> None:
    token = api.issue("paceline", "agents", "agents-0")
    reviewer.review(token)
    del api.tokens[token]
    clock.now_s += CACHED_S - 0.1
    assert reviewer.review(token).name == "agents-0"
    clock.now_s += 0.1
    assert "does not accept" in refusal(reviewer, token)
    assert "does not accept" in refusal(reviewer, token)
    assert api.reviews == [token, token]


def test_the_control_planes_own_token_is_read_for_each_request(
    api: ApiServer, reviewer: Reviewer, tmp_path: Path
) -> None:
    reviewer.review(api.issue("paceline", "agents", "agents-0"))
    api.own = "control-plane-2"
    said = unreviewed(reviewer, api.issue("paceline", "agents", "agents-1"))
    assert "HTTP 401" in said
    assert "bind its service account to the cluster role system:auth-delegator" in said
    own_token(tmp_path, "control-plane-2")
    assert reviewer.review(api.issue("paceline", "agents", "agents-1")).name == "agents-1"


def test_the_reason_for_an_unreachable_api_server_is_named(
    api: ApiServer, reviewer: Reviewer, certificates: Certificates, tmp_path: Path
) -> None:
    token = api.issue("paceline", "agents", "agents-0")
    other = make_certificates(tmp_path / "other")

    def asked(**changes: object) -> str:
        settings = {"accounts": ACCOUNTS, "api": api.url, "ca": certificates.ca, "token": own_token(tmp_path)}
        return unreviewed(Reviewer(Cluster(**{**settings, "remove_after": None, **changes})), token)  # type: ignore[arg-type]

    assert "PACELINE_KUBERNETES_TOKEN: " in asked(token=tmp_path / "none")
    assert "PACELINE_KUBERNETES_CA: " in asked(ca=tmp_path / "none")
    assert "certificate verify failed" in asked(ca=other.ca)
    assert "is not a certificate in PEM format" in asked(ca=own_token(tmp_path))
    assert "cannot be reached" in asked(api="https://127.0.0.1:1")
    assert "answered HTTP 404 without a review" in asked(api=f"{api.url}/elsewhere")
    assert api.reviews == []


def pod(name: str = "agents-0", account: str = "agents") -> Pod:
    found = parse_accounts(f"paceline/{account}:pool=default")[0]
    return Pod(account=found, service_account=account, name=name)


@pytest.mark.django_db
def test_a_pod_joins_under_its_own_name_and_with_its_accounts_labels() -> None:
    joined = pod_redeem(pod=pod(), name="agents-0", remove_after=timedelta(hours=1))
    agent = agent_by_credential(joined.credential)
    assert agent is not None
    assert (agent.name, agent.labels, agent.pod, agent.remove_after) == (
        "agents-0",
        {"pool": "default"},
        "paceline/agents/agents-0",
        timedelta(hours=1),
    )
    for other in ("agents-1", "agents-00", "agents", "agents-0-1"):
        with pytest.raises(
            EnrolmentRefused, match=r"is of pod 'agents-0', and .* asks: join with --name \$\(POD_NAME\)"
        ):
            pod_redeem(pod=pod(), name=other)


@pytest.mark.django_db
def test_a_pod_that_is_placed_again_is_the_same_machine_and_no_other_takes_its_place() -> None:
    first = pod_redeem(pod=pod(), name="agents-0")
    agent_connected(first.agent, hello("agents-0"))
    with pytest.raises(NameTaken, match="is online"):
        pod_redeem(pod=pod(), name="agents-0")
    agent_disconnected(first.agent)
    with pytest.raises(NameTaken, match="joined from pod paceline/agents/agents-0"):
        pod_redeem(pod=pod(account="others"), name="agents-0")
    token, _ = token_create(labels={}, uses=2)
    with pytest.raises(NameTaken, match="joined from pod paceline/agents/agents-0"):
        token_redeem(token=token, name="agents-0")
    again = pod_redeem(pod=pod(), name="agents-0")
    assert (again.agent, agent_by_credential(first.credential)) == (first.agent, None)


@pytest.mark.django_db
def test_a_machine_that_joined_on_a_token_is_taken_over_by_no_pod() -> None:
    token, _ = token_create(labels={})
    token_redeem(token=token, name="agents-0")
    with pytest.raises(NameTaken, match="has joined before"):
        pod_redeem(pod=pod(), name="agents-0")


@pytest.mark.django_db
def test_a_token_made_for_a_pods_machine_does_not_take_it_over() -> None:
    first = pod_redeem(pod=pod(), name="agents-0")
    token, row = token_create(labels={}, name="agents-0")
    with pytest.raises(NameTaken, match="'agents-0' joined from pod paceline/agents/agents-0, and only that pod"):
        token_redeem(token=token, name="agents-0")
    row.refresh_from_db()
    agent = agent_by_credential(first.credential)
    assert agent is not None
    assert (agent.pk, agent.pod, row.used) == (first.agent, "paceline/agents/agents-0", 0)


@pytest.mark.django_db
def test_no_pod_takes_the_name_of_another() -> None:
    """A pod ``agents`` of the same account would otherwise be ``agents-0`` before the StatefulSet's pod is."""
    with pytest.raises(EnrolmentRefused, match="is of pod 'agents', and 'agents-0' asks"):
        pod_redeem(pod=pod("agents"), name="agents-0")
    assert pod_redeem(pod=pod("agents"), name="agents_0").agent  # a second agent of one pod: no pod is called that
    assert pod_redeem(pod=pod(), name="agents-0").agent


@pytest.mark.django_db
def test_pods_that_are_offline_for_long_are_removed() -> None:
    pod_redeem(pod=pod(), name="agents-0", remove_after=timedelta(seconds=1))
    joined_at = Agent.objects.get().joined_at
    assert list(agents_remove_absent(now=joined_at + timedelta(seconds=1)).values()) == ["agents-0"]
