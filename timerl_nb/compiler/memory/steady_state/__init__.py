"""Long periodic runs: memory plans extrapolated from a few iterations (ADR 036)."""
