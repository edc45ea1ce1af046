"""Streams of labelled or unlabelled samples: data sets, protocols, corruptions."""
