"""The loop nest: nodes, and how they are built from a schedule."""
