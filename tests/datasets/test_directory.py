"""The data directory: where it is, what lies in it, and whether that is what was published."""

import gzip
import hashlib
import lzma

import pytest

from tellers.data import _directory as directory
from tellers.data._directory import data_directory, find_file, read_file, unpack

NAME = "adult/adult.data"


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.delenv("TELLERS_DATA", raising=False)
    (tmp_path / "adult").mkdir()
    return tmp_path


def test_the_argument_goes_before_the_environment(place, monkeypatch):
    monkeypatch.setenv("TELLERS_DATA", str(place / "adult"))
    assert data_directory() == place / "adult"
    assert data_directory(place) == place


def test_no_directory_says_how_to_name_one(place, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"data_dir=\.\.\. or set TELLERS_DATA"):
        data_directory()
    monkeypatch.setenv("TELLERS_DATA", str(place / "gone"))
    with pytest.raises(FileNotFoundError, match=r"gone \(TELLERS_DATA\), found none"):
        data_directory()


def test_a_missing_file_says_where_it_may_be_put(place):
    with pytest.raises(
        FileNotFoundError, match=r"Expected adult/adult\.data .*Put it into .*adult, or name another"
    ):
        find_file(NAME, data_dir=place)


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)],
    ids=["plain", "gz", "xz"],
)
def test_packing_does_not_change_the_checksum(place, monkeypatch, suffix, pack):
    content = b"39, State-gov"
    monkeypatch.setitem(directory.CHECKSUMS, NAME, hashlib.sha256(content).hexdigest())
    path = place / (NAME + suffix)
    path.write_bytes(pack(content))
    assert read_file(NAME, data_dir=place) == content
    path.write_bytes(pack(content + b"!"))
    with pytest.raises(ValueError, match=r"published adult/adult\.data .* differs.*Fetch the file again"):
        read_file(NAME, data_dir=place)
    assert read_file(NAME, data_dir=place, verify=False) == content + b"!"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_half_a_packed_file_is_damaged(tmp_path, pack):
    path = tmp_path / "half"
    path.write_bytes(pack(bytes(range(256)) * 50)[:60])
    with pytest.raises(ValueError, match="is damaged"):
        unpack(path)


def test_checksums_look_like_checksums():
    assert len(directory.CHECKSUMS) == 11
    assert all(len(known) == 64 and int(known, 16) for known in directory.CHECKSUMS.values())
    assert len(set(directory.CHECKSUMS.values())) == 11
