"""What RL-Scope (paper 002) found, found again; and what recording costs and sees."""
