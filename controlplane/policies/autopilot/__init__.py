"""The autopilot: chooses among the policies that a job allows."""
