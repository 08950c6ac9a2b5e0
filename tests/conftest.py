"""Settings of the whole suite."""

import os

from hypothesis import HealthCheck, settings

# In CI the same examples every time, so that what lands does not hang on luck; elsewhere new ones are searched for.
# How long an example takes says how busy the machine is; where time matters, a test measures it by itself.
settings.register_profile(
    "dpweave", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="CI" in os.environ
)
settings.load_profile("dpweave")
