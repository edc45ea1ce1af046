"""Errors, settings, files, randomness and prefetching: what every other room uses."""
