"""Predicted memory against XLA's figures and measured memory; tile sizes for the cache."""
