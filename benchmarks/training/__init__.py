"""Speed of training: programs of ours against hand-written JAX, and until they have learnt."""
