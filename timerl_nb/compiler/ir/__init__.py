"""Polyhedral dependence graph (PDG): operations, reads, types, text form and verifier.

`dependence_graph.Pdg` is an immutable value. `graph_rewriting.Edit` creates changed copies, and
`graph_verifier` checks each of them. `reference` evaluates a graph slowly, and defines its meaning. Source:
000_9a2364bc51ddf94b.txt §4 and §5.1.
"""
