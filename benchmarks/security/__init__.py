"""Attacks a control plane as an anonymous client or the owner of one machine could."""
