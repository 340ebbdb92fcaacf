"""Attention maps: data, text, pictures and HTML."""
