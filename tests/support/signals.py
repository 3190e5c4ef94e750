"""Signals as a program in the foreground has them, for tests that send some, however the tests were started."""

import signal


def restore_signals() -> None:
    """Handle again what was ignored at the start, as by a shell's `&` or a service; what a test starts inherits it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
