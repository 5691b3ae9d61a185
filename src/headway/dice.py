"""Random numbers for delays, from the system.

The global generator of `random` belongs to user code: it may be seeded, and a forked child repeats it.
"""

from random import SystemRandom

dice = SystemRandom()
