"""The engine: what was seen goes in, what is to be done comes out.

Pure: no clock, no storage, no chance but from seeds. Time is in the entries that it is handed. It knows the
vocabulary of ``controlplane.protocol`` and is handed its policies by name; it imports neither them nor any driver.
"""
