"""Saved folders of older versions; they must stay readable."""
