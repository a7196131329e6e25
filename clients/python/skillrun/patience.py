"""How often a broken call is repeated before the client gives up."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Patience:
    """Limits the consecutive tries without a result, and sets the pauses between them,
    which double each time. The default lasts about 10 s; a daemon's restart takes less."""

    tries: int = 9
    first: float = 0.05  # seconds before the second try
    most: float = 3.0  # seconds, the longest pause

    def pause(self, attempt: int, deadline: Optional[float]) -> Optional[float]:
        """Returns the seconds to wait before an attempt; the first attempt is 1. None says that
        there were enough attempts, or that the deadline (a time of time.monotonic) would pass."""
        if attempt > self.tries:
            return None
        pause = 0.0
        if attempt > 1:
            pause = min(self.most, self.first * 2.0 ** (attempt - 2))
            # Up to 20 % jitter, so that clients that were cut off together do not return together.
            pause -= random.random() * pause / 5
        if deadline is not None and time.monotonic() + pause >= deadline:
            return None
        return pause

    def wait(self, attempt: int, deadline: Optional[float]) -> bool:
        """Waits before an attempt. It returns False if pause allows no further one."""
        pause = self.pause(attempt, deadline)
        if pause is None:
            return False
        time.sleep(pause)
        return True
