"""What needs the extra says so, and what does not need it does not load it."""

import subprocess
import sys

import pytest

from tellers.data.sound.decoding import decode_bytes
from tellers.errors import MissingExtra


@pytest.mark.parametrize("gone", ["soundfile", "soxr"])
def test_without_the_extra_the_error_names_it(monkeypatch, gone):
    monkeypatch.setitem(sys.modules, gone, None)
    with pytest.raises(MissingExtra, match=r"pip install 'tellers\[audio\]'"):
        decode_bytes(b"", path="x")


def test_pictures_and_deals_do_without_it():
    code = (
        "import sys; sys.modules['soundfile'] = sys.modules['soxr'] = None\n"
        "from tellers.data import sound\n"
        "import tellers.runs.sound as audio\n"
        "assert 'numpy' not in sys.modules\n"
        "sound.log_mel(sound.make_sound('bell', 7))\n"
        "audio.deal_clips(100, 5, seed=7)\n"
        "print([m for m in ('torch', 'sklearn', 'joblib', 'rich') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch" not in done.stdout


def test_names_of_the_package_are_there_and_others_are_not():
    import tellers.runs.sound as audio

    for name in audio.__all__:
        assert getattr(audio, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_name"):
        audio.no_such_name  # noqa: B018
