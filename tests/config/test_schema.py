"""The JSON schema of settings files: it takes what `tellers` writes, and refuses what it would refuse."""

import tomllib

import pytest

from tellers.data._records import NAMED
from tellers.runs import PartySettings, RunConfig, default_config, write_config, write_party
from tellers.runs.settings.party import example_settings
from tellers.service import ServiceSettings, write_settings

jsonschema = pytest.importorskip("jsonschema_rs")  # which schemathesis brings
WRITTEN = [
    *((RunConfig, write_config(default_config(name))) for name in NAMED),
    *((PartySettings, write_party(example_settings(role))) for role in ("asker", "answerer", "guardian")),
    (ServiceSettings, write_settings(ServiceSettings())),
]


@pytest.mark.parametrize(("kind", "text"), WRITTEN)
def test_what_is_written_fits_the_schema(kind, text):
    jsonschema.meta.validate(kind.json_schema())
    jsonschema.validate(kind.json_schema(), tomllib.loads(text))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (RunConfig, "seed = -1"),
        (RunConfig, "[budgte]"),
        (RunConfig, "[budget]\nepsilon = 0"),
        (RunConfig, "[budget]\nepsilon = '2'"),
        (RunConfig, "[data]\nname = 'digit'"),
        (RunConfig, "[data]\nfolder = 'x'"),
        (RunConfig, "[mechanism]\nname = 'gnmx'"),
        (RunConfig, "[mechanism]\nsigma = -1"),
        (ServiceSettings, "[server]\nport = 99999"),
        (PartySettings, "[session]\nquorum = 2"),
        (PartySettings, "[party]\nname = 'a'\n[[peer]]\nname = 'b'\nrole = 'asker'"),
    ],
)
def test_what_would_be_refused_does_not(kind, text):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(kind.json_schema(), tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    ["[labels]\nthresholds = 0.3", "[labels]\nthresholds = [0.3, 0.4]", "[data]\nclasses = [0, 'one']"],
)
def test_one_number_for_a_list_and_numbers_for_names_fit(text):
    jsonschema.validate(RunConfig.json_schema(), tomllib.loads(text))


def test_the_schema_has_what_is_public_in_a_file():
    schema = RunConfig.json_schema()
    assert list(schema["properties"]) == ["seed", *RunConfig.sections()]
    rows = schema["$defs"]["DataConfig"]["properties"]["n_public"]
    assert rows["minimum"] == 0
    assert "default" not in rows
    assert "peer" in PartySettings.json_schema()["properties"]
