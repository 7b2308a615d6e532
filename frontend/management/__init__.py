"""Commands that draw figures."""
