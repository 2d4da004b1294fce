"""Replay buffer: storage of rows, n-step returns, samples, writers."""
