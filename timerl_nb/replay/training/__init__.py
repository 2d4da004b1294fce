"""Parallel training from a replay buffer: actors, learner, runtime thread (003_bc3f8b946743a61e, §3).

Entry point: `training_run.train` (`trl.replay.train`).
"""
