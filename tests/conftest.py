"""Settings of the whole suite."""

from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is; where time matters, a test measures it by itself.
settings.register_profile("dpweave", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dpweave")
