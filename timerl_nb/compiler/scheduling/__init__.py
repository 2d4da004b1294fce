"""Scheduling: an execution order for all statements of a fused graph.

`statements` lists the statements of a fused graph. `dependence_constraints` derives validity and
proximity constraints, isl computes a schedule from them, and `schedule_validation` checks it
against every dependence. The result is a `schedule_artifact.Schedule`. Source: the TimeRL paper,
section 6.1.
"""
