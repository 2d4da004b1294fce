"""Interface to isl: integer sets, relations, schedules and loop generation, with named dimensions.

The rest of the project uses these modules instead of islpy. `operation_limit` bounds the work of
every isl call.
"""
