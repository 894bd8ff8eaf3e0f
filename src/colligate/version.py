"""The version, read by everything that names it in a record."""

__version__ = "0.1.0"
