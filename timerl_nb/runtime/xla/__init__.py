"""The whole loop nest as XLA programs: loops inside, stores as the buffers that they carry."""
