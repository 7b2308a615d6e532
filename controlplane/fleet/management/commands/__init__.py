"""One module per command, named as it is called."""
