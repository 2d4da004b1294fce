"""Reverse-mode differentiation through symbolic dimensions (000_9a2364bc51ddf94b.txt §5.1).

Entry point: `reverse_mode`. `vjp_rules` has a rule for each kind of operation; `index_adjoints` inverts
the index expressions of reads.
"""
