"""mtcli: two text files become a translator of your own."""

__version__ = "0.1.0"
