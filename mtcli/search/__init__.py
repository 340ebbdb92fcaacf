"""Beam search and sampling for any `TranslationModel`."""
