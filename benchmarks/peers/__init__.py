"""One task on the same emulated machines, trained by Paceline and by others: ``manage.py bench peers``.

- ``task`` and ``scripts``: what a user of each library would write, with the same model, data, optimizer and batch;
- ``scenes`` and ``machine``: the speeds of the machines, and the pauses that emulate them, which are the same for all;
- ``contenders``, ``running`` and ``paceline_runs``: the contenders, their settings, and single runs;
- ``figures``, ``verdict`` and ``table``: the results.

``task``, ``scenes``, ``machine`` and the scripts run in the peers' environment too, which has no Django.
"""
