"""Analysis of optimised HLO: parser, and counts of launches, operations and bytes."""
