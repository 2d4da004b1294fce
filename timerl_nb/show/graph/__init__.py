"""Graph view: dependence graphs with layout and region hierarchy."""
