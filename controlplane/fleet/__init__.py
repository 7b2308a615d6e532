"""Agents, their slots, and the tokens by which machines join. Knows nothing of jobs but their numbers."""
