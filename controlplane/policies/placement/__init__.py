"""Which server holds which block."""
