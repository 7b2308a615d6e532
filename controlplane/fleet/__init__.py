"""Agents, their slots, and the tokens by which machines join. Knows only the numbers of jobs."""
