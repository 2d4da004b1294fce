"""Loop nest: the abstract syntax tree that executors run (000_9a2364bc51ddf94b.txt §6.3).

Input: a schedule with deallocations and swaps, under actual bounds. Output: nodes of `loop_nodes`, made by
`loop_builder`.
"""
