"""Agents, their slots, and the tokens with which machines join. Refers to jobs only by number."""
