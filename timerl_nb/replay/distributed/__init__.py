"""Off-policy training on Ray: remote actors, and a replay buffer divided into shards.

`training_run.train(cluster="ray")` is the entry point. `ray_training` connects the parts.
"""
