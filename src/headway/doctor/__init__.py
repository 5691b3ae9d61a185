"""Checks of an installation for `headway doctor`."""
