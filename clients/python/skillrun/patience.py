"""How often a broken call is tried again before this side gives up."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Patience:
    """Bounds the tries in a row that bring nothing, and the waits between them, which
    double. The default is about ten seconds: a daemon that restarts takes less."""

    tries: int = 9
    first: float = 0.05  # seconds before the second try
    most: float = 3.0

    def wait(self, attempt: int, deadline: Optional[float]) -> bool:
        """Waits before an attempt, the first of which is 1. False means that it is not
        to be made: there were enough, or the deadline (of time.monotonic) passes."""
        if attempt > self.tries:
            return False
        pause = 0.0
        if attempt > 1:
            pause = min(self.most, self.first * 2.0 ** (attempt - 2))
            # A fifth of jitter, so that clients cut off together don't return together.
            pause -= random.random() * pause / 5
        if deadline is not None and time.monotonic() + pause >= deadline:
            return False
        time.sleep(pause)
        return True
