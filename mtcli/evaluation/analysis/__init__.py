"""Analysis of translations for problems that a single score does not show."""
