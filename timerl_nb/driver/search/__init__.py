"""Search for a plan within a memory budget, and measurement of plans and machines (ADR 038)."""
