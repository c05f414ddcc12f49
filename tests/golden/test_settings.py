"""Settings files that were written before are read as they were, and wrong ones refused as they were.

The files lie in `old/settings.tar.xz`. What `tellers init` writes today may have other comments.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

HERE = Path(__file__).parent
READ = list(json.loads((HERE / "settings.json").read_text(encoding="utf-8"))["kept"])
WRONG = json.loads((HERE / "mistakes.json").read_text(encoding="utf-8"))


def needed(name):
    for word, library in (("serve", "fastapi"), ("keys", "fastapi"), ("party", "cryptography")):
        if name.startswith(word):
            pytest.importorskip(library)


@pytest.fixture(scope="module")
def found(kept, tmp_path_factory):
    """How every kept file is read now."""
    pytest.importorskip("fastapi")
    pytest.importorskip("cryptography")
    folder = tmp_path_factory.mktemp("settings")
    return kept.settings_read(kept.unpack("settings", folder), folder)


@pytest.mark.parametrize("name", READ)
def test_a_kept_file_is_read_as_it_was(kept, found, name):
    changed = kept.differences(found[name], kept.read("settings.json")[name])
    assert not changed, "\n".join(changed)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_as_it_was(kept, place, name):
    needed(WRONG[name]["command"])
    assert WRONG[name]["code"] == 2
    changed = kept.differences({**WRONG[name], **kept.wrong_settings(WRONG[name], place)}, WRONG[name])
    assert not changed, "\n".join(changed)
    assert not (place / "wrong-run" / "result.json").exists()


# Those of a data set; the others were made from one of them by hand.
WRITTEN = {name[4:-5] for name in READ if name.startswith("run/")} - {"cluster", "personal", "implications"}


@pytest.mark.parametrize("data", sorted(WRITTEN))
def test_what_is_written_now_means_what_was_written(kept, tmp_path, data):
    """A fresh settings file of a data set has the values of the kept one, whatever its comments.

    But for the share of silence that new settings expect, which old ones did not say.
    """
    code, _, err = kept.call(["init", f"{data}.toml", "--data", data], tmp_path)
    assert code == 0, err
    parse = kept.documented("tellers.config", "parse_config")
    old = (kept.unpack("settings", tmp_path) / "run" / f"{data}.toml").read_text()
    # The same class, by the name of the package that exports it; the old name is read and warns.
    old = old.replace("tellers.audio.tagger:AudioTagger", "tellers.runs.sound:AudioTagger")
    fresh, kept_one = parse((tmp_path / f"{data}.toml").read_text()), parse(old)
    if kept_one.mechanism.name == "confident":
        assert fresh.mechanism.expected_silence == 0.5
        assert kept_one.mechanism.expected_silence is None
        kept_one = replace(
            kept_one,
            mechanism=type(kept_one.mechanism)(
                name="confident", given={**kept_one.mechanism.given, "expected_silence": 0.5}
            ),
        )
    assert fresh == kept_one
