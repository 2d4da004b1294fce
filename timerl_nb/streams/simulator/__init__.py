"""A stream on a simulated GPU, by six ways of running it; the GPU and its host are a `Gpu`."""
