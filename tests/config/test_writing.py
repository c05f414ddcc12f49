"""Settings written down: they read back the same, and every option is explained."""

import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.data._records import NAMED
from tellers.runs import (
    RunConfig,
    config_as_dict,
    default_config,
    parse_config,
    read_config,
    with_absolute_paths,
    write_config,
)


@settings(max_examples=40)
@given(data=st.data())
def test_what_is_written_reads_back_the_same_and_plain_values_are_json(data, any_run):
    config = data.draw(any_run)
    assert parse_config(write_config(config)) == config
    plain = config_as_dict(config)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    unsaid = ["labels"] * (not config.labels.names) + ["sum"] * (config.mechanism.name != "gaussian-sum")
    assert list(plain) == ["seed", *(title for title in RunConfig.sections() if title not in unsaid)]
    assert plain["budget"]["epsilon"] == config.budget.epsilon
    assert set(plain["mechanism"]) == {"name", *config.mechanism.given}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_the_defaults_of_every_data_set_are_settings(name):
    config = default_config(name)
    assert config.data.name == name
    assert parse_config(write_config(config)) == config


def test_no_settings_for_a_data_set_nobody_knows():
    with pytest.raises(ValueError, match=r"Expected one of adult, .*got 'imagenet'"):
        default_config("imagenet")


@pytest.mark.parametrize("data", ["digits", "made_multilabel"])
def test_every_option_is_written_below_its_words(data):
    config = default_config(data)
    lines = write_config(config).splitlines()
    words = " ".join(line.removeprefix("# ") for line in lines if line.startswith("#"))
    for section in (config, *config.said().values()):
        for name, option in section.told().items():
            places = [n for n, line in enumerate(lines) if line.removeprefix("# ").startswith(f"{name} = ")]
            assert any(lines[n - 1].startswith("# ") for n in places), name
            assert option.description in words


def test_nothing_is_said_of_labels_where_there_are_none():
    written = write_config(RunConfig())
    assert "[labels]\n" not in written
    assert "max_norm" not in written
    assert "labels" not in config_as_dict(RunConfig())


def test_a_written_file_is_narrow():
    assert max(map(len, write_config(RunConfig()).splitlines())) <= 100


def test_the_parameters_of_other_mechanisms_are_shown_as_comments():
    written = write_config(RunConfig())
    assert "\n# gamma = 0.25\n" in written
    assert set(tomllib.loads(written)["mechanism"]) == {"name", "sigma", "threshold", "sigma_threshold"}


def test_an_infinite_parameter_is_a_word_in_json():
    config = parse_config("[teachers]\nparameters = {C = inf, shape = [1, 2]}\n")
    assert config_as_dict(config)["teachers"]["parameters"] == {"C": "inf", "shape": [1, 2]}


def test_a_copy_in_another_folder_finds_the_same_files(tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "study" / "a.toml").write_text(write_config(default_config("files")))
    config = read_config(tmp_path / "study" / "a.toml")
    (tmp_path / "out" / "config.toml").write_text(write_config(with_absolute_paths(config)))
    copy = read_config(tmp_path / "out" / "config.toml")
    assert copy.data.private_path == config.data.private_path == tmp_path / "study" / "private.csv"
    assert with_absolute_paths(copy) == copy
    assert with_absolute_paths(config).data.directory == ""
