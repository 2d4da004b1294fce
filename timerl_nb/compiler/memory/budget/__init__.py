"""Memory budgets: check, swapping to the host, lower bounds, and costs of candidates."""
