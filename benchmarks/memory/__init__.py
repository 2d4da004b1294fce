"""Predicted memory against stated and measured, and tiles that fit the cache."""
