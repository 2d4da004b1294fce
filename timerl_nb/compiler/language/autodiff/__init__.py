"""Reverse-mode differentiation through symbolic dimensions. Source: TimeRL §5.1.

Entry point: `reverse_mode`. `vjp_rules` contains one rule per kind of operation; `index_adjoints` inverts the
index expressions of reads.
"""
