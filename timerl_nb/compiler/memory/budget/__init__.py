"""Memory budgets: check, swapping to the host, lower bounds, kernel temporaries, candidate
costs.
"""
