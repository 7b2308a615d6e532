"""One task on the same emulated machines, trained by Paceline and by others: ``manage.py bench peers``.

- ``task`` and ``scripts``: what a user of each library would write, with the same model, data, optimizer and batch;
- ``scenes`` and ``machine``: how fast the machines are, and the pauses that make them so, which are the same for all;
- ``contenders``, ``running`` and ``paceline_runs``: who takes part, by which settings, and one run of it;
- ``figures``, ``verdict`` and ``table``: what came of it.

``task``, ``scenes``, ``machine`` and the scripts run in the peers' environment too, which has no Django.
"""
