"""The house holds itself to its own drawing."""
