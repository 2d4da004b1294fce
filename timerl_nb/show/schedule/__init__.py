"""Schedule views: loop nest and iteration space."""
