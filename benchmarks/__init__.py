"""All benchmarks: latencies that users see, losses under faults, and single components.

``manage.py bench NAME`` runs one of them; ``command`` lists their names. Nothing else imports this package.

- ``live``: a private control plane with simulated workers, pages and jobs;
- ``faults``: kills, pauses, cut links, and whether anything was lost;
- ``security``: anonymous clients and a malicious machine;
- ``database``: reading and writing history, on a temporary database;
- ``training``: the papers' systems in real processes;
- ``peers``: one task by Paceline, DDP, Ray Train, torchft and Flower;
- ``dataplane``: servers, all-reduce and a worker's memory, compared with bare sockets and DistributedDataParallel;
- ``offline``: the engine, the simulator, predictors and detectors alone.
"""
