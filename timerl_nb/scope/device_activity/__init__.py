"""Device activity: operations and interface calls, from CUPTI, Kineto or XLA traces."""
