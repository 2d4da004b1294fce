"""Loop nest: the abstract syntax tree that executors run (TimeRL §6.3).

Input: a schedule with deallocations and swaps, under actual bounds. Output: nodes of `loop_nodes`, made by
`loop_builder`.
"""
