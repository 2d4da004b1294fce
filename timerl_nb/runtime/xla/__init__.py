"""XLA executor: the whole loop nest as a few XLA programs whose loops carry the buffers."""
