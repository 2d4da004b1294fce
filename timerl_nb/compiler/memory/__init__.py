"""Memory planning: liveness, storage, swapping and the predicted memory timeline.

Input: a schedule and actual bounds. Output: `memory_plan.MemoryPlan`, before anything runs.
Source: 000_9a2364bc51ddf94b.txt §6.2.
"""
