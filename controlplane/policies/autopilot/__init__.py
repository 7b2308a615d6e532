"""The autopilot: which of the policies that a job may have it should have."""
