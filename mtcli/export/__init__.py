"""A trained model in the format of another engine: CTranslate2's, so far."""
