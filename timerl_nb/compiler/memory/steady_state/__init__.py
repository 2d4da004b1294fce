"""Long runs: the plan of a few iterations, extrapolated over its period (ADR 036)."""
