"""Graph view: dependence graphs with layout and a hierarchy of regions."""
