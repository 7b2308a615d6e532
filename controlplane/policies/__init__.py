"""The answers to a job's questions: a folder per question, a file per answer, one table (``registry``) of names.

Pure: values in, decision out. A policy does no I/O, reads no clock, and keeps no memory outside the state that it is
handed and gives back.
"""
