"""The engine: events in, commands out.

Pure: no clock, no storage, random numbers only from seeds. Time is in the entries of the log. It imports the message
types of ``controlplane.protocol``. It receives its policies by name and imports neither them nor any driver.
"""
