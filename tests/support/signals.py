"""The process of a test session as the tests expect it, whatever started it: signals, their mask, standard streams."""

from __future__ import annotations

import os
import signal

# Ignored by `nohup`, by a background job of a script and by some service managers; a program inherits that.
RESTORED = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCHLD,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGTSTP,
)


def restore() -> None:
    """Gives signals their default effect, here and in every process that the tests start.

    SIGPIPE stays as Python sets it; `subprocess` restores it for its children."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in RESTORED:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    _fill_standard_streams()


def _fill_standard_streams() -> None:
    """Opens /dev/null in place of a closed standard stream: the next file would take its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            assert opened == number
