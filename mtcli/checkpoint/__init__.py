"""A model is a directory: what is in it, and how it is written so that nothing is lost."""
