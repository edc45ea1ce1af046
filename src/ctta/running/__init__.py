"""Running an experiment: the loop, checkpoints, engines."""
