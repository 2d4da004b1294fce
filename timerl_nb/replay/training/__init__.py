"""Parallel training from a replay buffer with actor, learner and runtime threads. Source: PEARL §3.

The entry point is `training_run.train` (`trl.replay.train`).
"""
