"""Parallel training from a replay buffer: actors, learner and runtime thread (003_bc3f8b946743a61e, §3)."""
