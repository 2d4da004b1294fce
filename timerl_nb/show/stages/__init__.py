"""Stage views: pipeline, rewrite steps, operations and their lineage."""
