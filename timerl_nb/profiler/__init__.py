"""Where the time of a run goes: `trl.profile(program)`."""

from timerl_nb.profiler.run_profile import Profile, Row, profile

__all__ = ["Profile", "Row", "profile"]
