"""Scheduling: an execution order for all statements of a fused graph.

Input: a fused graph, read as `statements`. `dependence_constraints` derives validity and proximity
constraints, isl computes a schedule, and `schedule_validation` checks it against every dependence.
Output: `schedule_artifact.Schedule`. Source: 000_9a2364bc51ddf94b.txt §6.1.
"""
