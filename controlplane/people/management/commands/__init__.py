"""Commands for users, credentials and the audit trail."""
