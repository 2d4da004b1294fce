"""XLA executor: runs the loop nest as a few XLA programs, whose loops carry the buffers."""
