import _signal
_signal.raise_signal(_signal.SIGINT)
