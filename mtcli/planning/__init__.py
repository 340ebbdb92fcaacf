"""Settings chosen from corpus statistics and hardware, each with a reason."""
