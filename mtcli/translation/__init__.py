"""Translation with a trained model: engines, batching, streaming and output formats."""
