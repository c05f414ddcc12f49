"""Settings that every test shares."""

import os

from hypothesis import HealthCheck, settings

# One failing example must fail for everyone: the default profile draws the same examples every time.
# HYPOTHESIS_PROFILE=explore looks further, with fresh examples and many more of them.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "explore", parent=settings.get_profile("steady"), derandomize=False, max_examples=2000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
