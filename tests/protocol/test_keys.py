"""No process can pose as another."""

import itertools

from controlplane.protocol.keys import data_key, matches, process_key, proof

JOB_KEY = bytes(range(32))


def test_every_role_index_and_instance_has_a_key_of_its_own():
    names = itertools.product(("worker", "server"), (0, 1, 11), ("a.0.1", "a.0.2"))
    keys = {process_key(JOB_KEY, role, index, instance) for role, index, instance in names}
    assert len(keys) == 12
    assert {len(key) for key in keys} == {32}


def test_parts_cannot_be_shifted_into_one_another():
    assert process_key(JOB_KEY, "worker", 1, "1.0") != process_key(JOB_KEY, "worker", 11, ".0")


def test_server_derives_the_key_that_its_worker_was_given():
    server_key = process_key(JOB_KEY, "server", 0, "s0.0.1")
    given = data_key(server_key, 3, "w3.0.1")
    assert matches(proof(data_key(server_key, 3, "w3.0.1"), b"nonce"), proof(given, b"nonce"))
    assert not matches(proof(given, b"nonce"), proof(given, b"other"))
    assert data_key(server_key, 3, "w3.0.2") != given
