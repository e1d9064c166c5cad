"""How long do random tests look? `HYPOTHESIS_PROFILE=soak` looks long and somewhere else each time.

The default is for every day: the same examples each time, so that what is red is red because of the change.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, Phase, settings

# What a shell's `&` or nohup ignores would be ignored by everything we start: no Ctrl-C could be tested.
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # whole simulations are slow to draw; that is fine
settings.register_profile("test", max_examples=40, deadline=None, derandomize=True, suppress_health_check=SLOW)
settings.register_profile("soak", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=SLOW)
# Whole simulations take minutes to shrink; this one shows the first example it finds.
HUNT = [Phase.explicit, Phase.generate]
settings.register_profile("hunt", max_examples=300, deadline=None, phases=HUNT, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: at the end no core waits for another's last file."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
