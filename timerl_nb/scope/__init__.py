"""Where the time of an RL program goes, across its stack (RL-Scope, paper 002).

So far: what is recorded of a thread (`edges`, `lanes`), and where its time went (`overlap`, `transitions`). Nothing records yet.
"""
