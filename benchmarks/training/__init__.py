"""Speed of training: our programs against hand-written JAX, and time until solved."""
