"""Training: from a configuration to a model directory."""
