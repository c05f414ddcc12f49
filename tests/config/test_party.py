"""Settings of a party: what is wrong in a file is said with its line, and terms are the same for all."""

import dataclasses

import pytest

from tellers import Binary, ConfidentBinary, GNThreshold
from tellers.errors import ConfigError
from tellers.runs import MechanismConfig, PartySettings, parse_party, write_party
from tellers.runs.settings.party import confidential_names, example_settings


@pytest.mark.parametrize("role", ["asker", "answerer", "guardian"])
def test_files_are_read_back_as_they_were(role):
    settings = example_settings(role)
    text = write_party(settings)
    assert parse_party(text) == settings
    assert text.count("[[peer]]") == 4
    assert "[mechanism]" in text


def test_lists_of_whole_numbers_are_numbers_and_may_hold_one_twice():
    text = write_party(example_settings("guardian"))
    changed = text.replace('kind = "linear"', 'kind = "network"').replace("hidden = []", "hidden = [8, 8]")
    assert parse_party(changed).session.hidden == (8, 8)
    with pytest.raises(ConfigError, match=r"session\.hidden: Expected a list of whole numbers, at least 1"):
        parse_party(changed.replace("[8, 8]", "[8, 0]"))


def test_all_parties_have_the_same_terms_until_one_changes_them():
    every = [example_settings(role) for role in ("asker", "answerer", "guardian")]
    assert len({one.terms for one in every}) == 1
    first = every[0]
    for changed in (
        {"mechanism": MechanismConfig(name="gnmax", sigma=9.0)},
        {"session": dataclasses.replace(first.session, quorum=3)},
        {"hardening": dataclasses.replace(first.hardening, pairwise=False)},
    ):
        assert dataclasses.replace(first, **changed).terms != first.terms
    limits = dataclasses.replace(first.limits, queries_per_asker=5)
    assert dataclasses.replace(first, limits=limits).terms == first.terms


def test_names_of_mechanisms_are_those_that_can_be_computed():
    assert confidential_names() == ("gnmax", "confident", "binary", "confident-binary", "gnthreshold")


def test_mechanisms_are_built():
    settings = example_settings("guardian")

    def built(**given):
        return dataclasses.replace(settings, mechanism=MechanismConfig(**given)).build_mechanism()

    assert built(name="binary", sigma=5.0) == Binary(sigma=5.0, n_labels=3)
    assert built(name="gnthreshold", sigma=5.0, share=0.3, max_labels=2) == GNThreshold(
        sigma=5.0, n_labels=3, share=0.3, max_labels=2
    )
    bar = {"threshold": 2, "sigma_threshold": 4.0}
    assert built(name="confident-binary", sigma=5.0, **bar) == ConfidentBinary(5.0, 3, 2, 4.0)


WRONG = [
    ("asker", 'name = "ann"', 'name = "Ann"', "party.name", "small letters"),
    ("answerer", 'listen = "127.0.0.1:7402"', 'listen = "here"', "party.listen", "127.0.0.1:7400"),
    ("asker", 'name = "gnmax"', 'name = "lnmax"', "mechanism.name", "gnmax, confident, binary"),
    ("guardian", 'name = "gnmax"', 'name = "interactive"', "mechanism.name", "which parties can compute"),
    ("asker", "quorum = 2", "quorum = 9", "session.quorum", "from 2 to 3"),
    ("asker", "quorum = 2", "quorum = 1", "session.quorum", "from 2 to 3"),
    (
        "answerer",
        "max_lost_per_asker = 500",
        "max_lost_per_asker = 99",
        "limits.max_lost_per_asker",
        "at least a batch, 100 queries",
    ),
    ("asker", "n_outputs = 3", "n_outputs = 1", "session.n_outputs", "at least 2"),
    ("asker", "sigma = 8.0", "sigma = 8.0\nthreshold = 3", "mechanism.threshold", "threshold too"),
    ("guardian", 'url = "ledger.db"', 'url = ""', "ledger.url", "books of this guardian"),
    ("answerer", 'url = "ledger.db"', 'url = ""', "ledger.url", "books of this answerer"),
    ("guardian", "epsilon = 10.0", "epsilon = 0", "ledger.epsilon", "above 0"),
    ("answerer", 'path = "model.skops"', 'path = ""', "model.path", "votes"),
    ("answerer", f'mask_key = "{3:064x}"', "", "peer.2.mask_key", "pairwise"),
    ("asker", f'pin = "{1:064x}"', 'pin = "AB:CD"', "peer.1.pin", "64 hexadecimal"),
    ("asker", f'pin = "{1:064x}"', f'pin = "{1:064x}"\nnext_pin = "AB"', "peer.1.next_pin", "64 hexadecimal"),
    ("asker", 'address = "127.0.0.1:7401"', "", "peer.1.address", "address"),
    ("asker", 'role = "guardian"', 'role = "answerer"', "party.role", "one guardian"),
    ("asker", 'name = "guard"', 'name = "north"', "peer", "again"),
    ("asker", "max_open = 4", "max_opne = 4", "limits.max_opne", "Did you mean max_open"),
    ("asker", "pairwise = true", 'pairwise = "yes"', "hardening.pairwise", "without quotes"),
    ("asker", "[[peer]]\n", "[[peer]]\nport = 3\n", "peer.0.port", "Unknown option"),
    ("asker", "[limits]", "[limit]", "limit", "Did you mean limits"),
    ("asker", "# noise_sigma = 5.0\n", "noise_sigma = 0.1\n", "hardening.noise_sigma", "above"),
]


@pytest.mark.parametrize(("role", "old", "new", "key", "words"), WRONG, ids=[row[3] for row in WRONG])
def test_mistakes_are_named_with_their_line(role, old, new, key, words):
    text = write_party(example_settings(role))
    assert old in text
    changed = text.replace(old, new) if old == "[[peer]]\n" else text.replace(old, new, 1)
    with pytest.raises(ConfigError) as refused:
        parse_party(changed, source="party.toml")
    said = str(refused.value)
    assert words in said
    assert f"{key}" in said
    assert all(line.startswith("party.toml:") for line in said.splitlines())


def test_a_file_without_a_party_and_peers_that_are_no_tables():
    with pytest.raises(ConfigError, match=r"\[party\]"):
        parse_party("[session]\nn_features = 3\n")
    with pytest.raises(ConfigError, match=r"\[\[peer\]\]"):
        parse_party("peer = 3\n")
    with pytest.raises(ConfigError, match="Expected a pin here"):
        parse_party('[party]\nname = "a"\n[[peer]]\nname = "b"\nrole = "asker"\n')


def test_noise_must_stay_unknown_to_somebody():
    settings = example_settings("guardian")
    hard = dataclasses.replace(settings.hardening, noise_sigma=5.0, n_colluding=2)
    with pytest.raises(ConfigError, match="n_colluding"):
        dataclasses.replace(settings, hardening=hard)
    assert isinstance(settings, PartySettings)
    assert settings.place("postgresql://db/x") == "postgresql://db/x"
    assert settings.guardian == "guard"
