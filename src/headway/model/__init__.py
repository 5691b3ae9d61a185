"""The decisions: pure functions and frozen values. No I/O, no SQL, no clock."""
