"""Settings chosen based on corpus statistics and hardware, each with a reason."""
