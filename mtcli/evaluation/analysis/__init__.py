"""Analysis of translations: the problems that a single score does not show."""
