"""Memory planning: liveness, storage, swapping and the predicted memory timeline.

Input: a schedule and actual bounds. Output: `memory_plan.MemoryPlan`, before the program runs.
Source: the TimeRL paper, section 6.2.
"""
