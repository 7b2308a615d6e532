"""K-means and least squares are what scikit-learn and the textbook make of the same data."""

import numpy as np
import torch
from sklearn.cluster import KMeans as Reference

from controlplane.protocol.training import Optimizer, Workload
from workers.workloads.catalogue import load_workload


def test_k_means_without_memory_is_lloyds() -> None:
    workload = load_workload(Workload(name="k-means", options={"memory": 0.0, "clusters": 6}))
    replica = workload.replica()
    start = workload.init(3)
    replica.parameters[:] = start
    everyone = np.arange(workload.sample_count)
    rule = workload.rule(torch.from_numpy(replica.parameters), Optimizer())
    for _ in range(8):
        for part in np.array_split(everyone, 3):
            replica.update(part)
        total = np.zeros_like(replica.gradient)
        for part in np.array_split(everyone, 3):
            replica.update(part)
            total += replica.gradient
        rule.apply(torch.from_numpy(total), len(everyone))
    rows = workload.dataset.split.train.features.flatten(1).numpy()  # type: ignore[attr-defined]
    reference = Reference(n_clusters=6, init=start[: 6 * 64].reshape(6, 64), n_init=1, max_iter=8, tol=0.0).fit(rows)
    ours = replica.parameters[: 6 * 64].reshape(6, 64) / replica.parameters[6 * 64 :, None]
    np.testing.assert_allclose(ours, reference.cluster_centers_, atol=2e-2)


def test_als_alternates_exact_ridge_problems() -> None:
    data = {"users": 40, "items": 15, "ratings": 8}
    options = {"rank": 3, "memory": 0.0, "l2": 0.2}
    workload = load_workload(Workload(name="als", dataset="movielens-like", options=options, data=data))
    replica = workload.replica()
    replica.parameters[:] = workload.init(1)
    factors = replica._item_factors().numpy()  # type: ignore[attr-defined]
    table = workload.dataset.split.train  # type: ignore[attr-defined]
    replica.update(np.arange(40))
    workload.rule(torch.from_numpy(replica.parameters), Optimizer()).apply(torch.from_numpy(replica.gradient), 40)
    users = np.zeros((40, 3))
    ratings = [[] for _ in range(15)]  # type: ignore[var-annotated]
    for user in range(40):
        mine = slice(table.starts[user], table.starts[user + 1])
        items, given = table.columns[mine].numpy(), table.values[mine].numpy()
        theirs = factors[items]
        users[user] = np.linalg.solve(theirs.T @ theirs + 0.2 * len(items) * np.eye(3), theirs.T @ given)
        for item, value in zip(items, given, strict=True):
            ratings[item].append((user, value))
    expected = []
    for given in ratings:
        rows, values = users[[user for user, _ in given]], np.array([value for _, value in given])
        expected.append(np.linalg.solve(rows.T @ rows + 0.2 * len(given) * np.eye(3), rows.T @ values))
    np.testing.assert_allclose(replica._item_factors().numpy(), expected, rtol=1e-3, atol=1e-3)  # type: ignore[attr-defined]


def test_the_lasso_finds_the_features_that_matter() -> None:
    workload = load_workload(Workload(name="lasso", dataset="lines", options={"l1": 0.1}, data={"informative": 5}))
    replica = workload.replica()
    rule = workload.rule(torch.from_numpy(replica.parameters), Optimizer(lr=0.3))
    for _ in range(60):
        update = replica.update(np.arange(workload.sample_count))
        rule.apply(torch.from_numpy(replica.gradient), update.samples)
    assert np.count_nonzero(replica.parameters) == 5
