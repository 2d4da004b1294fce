"""Replay buffer: rows, n-step returns, samples, writers (003_bc3f8b946743a61e, §3)."""
