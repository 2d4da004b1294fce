"""Interface to isl: integer sets, relations, schedule trees and loop generation, by dimension names.

All other packages use these modules instead of islpy."""
