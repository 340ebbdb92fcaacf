"""Analysis of translations: problems that a single score does not show."""
