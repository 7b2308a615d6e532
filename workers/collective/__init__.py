"""All-reduce among the workers of one job: a process group per generation, recreated whenever a worker joins or leaves.

Groups are created directly from torch.distributed's classes over one store each. Nothing is global, so a process can
leave one group and join the next within milliseconds. This package only sums; update rules and parameters are
elsewhere.
"""
