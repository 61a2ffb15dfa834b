"""How hypothesis runs here: a machine that is busy with other things must not fail a property."""

from hypothesis import HealthCheck, settings

settings.register_profile("synapse", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("synapse")
