"""Files of a model directory: configuration, weights, checkpoints, manifest, card."""
