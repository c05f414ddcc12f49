"""Schemathesis: requests drawn from the API's own description, valid and broken, and what comes back."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.errors import Unsatisfiable

from tellers.service.app import describe_api

schemathesis = pytest.importorskip("schemathesis")
from schemathesis import checks  # noqa: E402
from schemathesis.generation import GenerationMode  # noqa: E402

# What a description cannot say and is refused: an id written 3.0, a row that is none of the pool's.
EXCLUDED = [checks.positive_data_acceptance]
# Elsewhere, names in the address that nobody knows are passed over, and the key is always sent.
EXCLUDED_ELSEWHERE = [*EXCLUDED, checks.negative_data_rejection]


@pytest.mark.parametrize(("mode", "with_rows"), [("positive", False), ("positive", True), ("negative", True)])
def test_answers_are_what_the_description_says(place, tmp_path, mode, with_rows):
    if with_rows:
        np.save(tmp_path / "pool.npy", np.arange(10.0).reshape(5, 2))
    pool = "pool.npy" if with_rows else ""
    easy = place.limited(requests_per_minute=0, failures_per_minute=0, max_batch=5)
    data = replace(easy.settings.data, pool=pool)
    easy = replace(easy, settings=replace(easy.settings, data=data))
    keys = {"/metrics": easy.bearer("otto", "operator"), "/v1/ledger/verify": easy.bearer("ada", "auditor")}
    alice = easy.bearer("alice")
    n_answered = 0
    with easy.open() as client:
        schema = schemathesis.openapi.from_asgi("/v1/openapi.json", client.app, headers=alice)
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) == 6
        for operation in operations:

            @settings(max_examples=24 if operation.path == "/v1/labels" else 6, deadline=None)
            @given(case=operation.as_strategy(GenerationMode(mode)))
            def try_one(case):
                nonlocal n_answered
                headers = keys.get(case.path, alice)
                excluded = EXCLUDED if case.path == "/v1/labels" else EXCLUDED_ELSEWHERE
                response = case.call_and_validate(headers=headers, excluded_checks=excluded)
                easy.heard.append(response.text)
                n_answered += response.status_code == 200 and case.path == "/v1/labels"

            with suppress(Unsatisfiable):  # what takes no input has no wrong one
                try_one()
    assert n_answered >= 5 or with_rows or mode == "negative"


def test_every_operation_is_described(place):
    with place.open() as client:
        schema = describe_api(client.app)
    operations = {name: one for path in schema["paths"].values() for name, one in path.items()}
    found = [one for path in schema["paths"].values() for one in path.values()]
    assert operations
    for one in found:
        assert one["summary"]
        assert one["description"]
        assert one["operationId"]
    asked = schema["paths"]["/v1/labels"]["post"]
    assert set(asked["responses"]) >= {
        "200",
        "400",
        "401",
        "402",
        "403",
        "409",
        "413",
        "415",
        "422",
        "429",
        "500",
    }
    assert asked["requestBody"]["content"]["application/json"]["examples"]
    assert asked["security"]
