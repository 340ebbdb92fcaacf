"""Conversion of trained models to CTranslate2."""
