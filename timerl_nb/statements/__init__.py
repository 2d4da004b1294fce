"""A fused graph as what runs: statements, and what they read."""
