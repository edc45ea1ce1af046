"""Experiments as settings: read, checked and built before anything runs."""
