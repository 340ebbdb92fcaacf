"""Corpus quality: findings about a parallel corpus, and cleaned copies of it."""
