"""Interface to isl: integer sets, relations, schedules and loop generation, by dimension names.

All other packages use these modules instead of islpy. `operation_limit` bounds the work of every call.
"""
