"""The policies of a job: a folder per kind, a file per policy, one table (``registry``) of names.

Pure: values in, decision out. A policy does no I/O, reads no clock, and keeps no memory outside the state that it is
given and returns.
"""
