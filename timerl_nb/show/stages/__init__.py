"""Views of compilation stages: pipeline, rewrite steps, operations and their lineage."""
