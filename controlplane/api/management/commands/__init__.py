"""Commands that use the API, or issue credentials for it."""
