from workers.launched import Launched


def test_agents_of_a_launcher_have_names_and_tokens_of_their_own() -> None:
    third = Launched.by({"RANK": "3", "WORLD_SIZE": "4"})
    assert (third.named("host"), third.filled("@/run/token-{rank}")) == ("host-3", "@/run/token-3")


def test_an_agent_that_nobody_launched_is_as_it_was_called() -> None:
    alone = Launched.by({"RANK": "3"})
    assert (alone.named("host"), alone.filled("@token-{rank}"), alone.filled(None)) == ("host", "@token-{rank}", None)
