"""Plans written down and read again are the same plans."""

import json

import numpy as np
import pytest

from tellers import ConfidentGNMax, GNMax
from tellers.runs.personal import make_plan, plan_as_dict, plan_from_dict, read_consent

CONSENT = read_consent([0.7] * 60 + [1.4] * 30 + [2.8] * 30, delta=1e-5)


@pytest.mark.parametrize("mechanism", [GNMax(9.0), ConfidentGNMax(9.0, threshold=20, sigma_threshold=12.0)])
@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_a_plan_that_was_written_down_prices_and_seats_as_before(variant, mechanism):
    plan = make_plan(variant, CONSENT, mechanism, n_teachers=24, seed=5)
    again = plan_from_dict(json.loads(json.dumps(plan_as_dict(plan))))
    assert again.mechanism == plan.mechanism
    assert again.groups == plan.groups
    weights = plan.weights(12, key="q")
    assert weights is None or np.array_equal(weights, again.weights(12, key="q"))
    for name, price in plan.prices(12, key="q").items():
        assert np.array_equal(price.values, again.prices(12, key="q")[name].values)


def test_damaged_records_are_refused():
    record = plan_as_dict(make_plan("weighting", CONSENT, GNMax(9.0), n_teachers=24, seed=5))
    for changed in ({"weight_of": [1]}, {"members": [[0], [0], [1]]}, {"groups": [{"name": "x"}]}):
        with pytest.raises(ValueError, match="damaged"):
            plan_from_dict({**record, **changed})
    with pytest.raises(ValueError, match="format 1"):
        plan_from_dict([])
    with pytest.raises(ValueError, match="variant of this version"):
        plan_from_dict({**record, "variant": "shouting"})
