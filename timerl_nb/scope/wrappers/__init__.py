"""Function wrappers that record calls of native libraries, in C or Python."""
