"""Replay buffer: ring of rows, n-step returns, samples and writers. Source: PEARL §3."""
