"""Metrics with signatures, and the evaluation of models."""
