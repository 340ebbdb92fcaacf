"""Typed settings: a YAML file becomes one frozen `Config`."""
