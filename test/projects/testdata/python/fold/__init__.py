"""Folds bytes into small numbers."""

from fold._fold import adler


def same(a, b):
    """Reports whether two byte strings have the same sum."""
    return adler(a) == adler(b)
