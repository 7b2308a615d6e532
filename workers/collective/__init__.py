"""All-reduce among the workers of one job: a process group per generation, recreated whenever a worker joins or leaves.

Groups are bare objects of torch.distributed over one store each; nothing here is global, so a process can leave one
group and be in the next within milliseconds. Sums here, rules and parameters elsewhere.
"""
