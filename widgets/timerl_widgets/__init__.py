"""Notebook widgets of TimeRL-nb, drawn from the view-models of `timerl_nb.show`."""

from timerl_widgets.pdg_view import PdgView

__all__ = ["PdgView"]
