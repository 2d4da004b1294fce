"""Transformations: graph in, graph out, each a module that can be left out."""
