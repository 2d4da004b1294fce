"""Where the time of an RL program goes, across its stack: recorded, taken apart, corrected (RL-Scope)."""
