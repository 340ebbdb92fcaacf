"""Training events, and the displays, logs and reports that consume them."""
