"""Decides which jobs start on which machines, and which processes leave a drained machine: values in, plans out.

Pure, as the engine is, but separate from it: the engine runs one job, and knows neither the queue nor other jobs.
"""
