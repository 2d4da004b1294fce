"""Tiling of reductions over long axes (TimeRL §5.3)."""
