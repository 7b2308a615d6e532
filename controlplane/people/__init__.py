"""Users: sign-in, sessions, API tokens, teams, quotas and the audit trail."""
