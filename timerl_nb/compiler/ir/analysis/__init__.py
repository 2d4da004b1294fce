"""Analyses of dependence graphs: resolved reads, needed points, dynamic lengths, cost terms."""
