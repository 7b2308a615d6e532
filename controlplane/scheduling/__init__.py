"""Which jobs start on which machines, in which order, and what leaves a machine that is drained: values in, plans out.

Pure, like the engine, and apart from it: the engine runs one job, and knows neither the queue nor other jobs.
"""
