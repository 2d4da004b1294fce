"""The driver of a compilation: its passes and stages in order, what is kept of them, and programs."""
