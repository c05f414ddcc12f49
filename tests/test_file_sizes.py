"""Files from outside that declare too much: refused in words, and nothing of that size is set aside."""

import gzip
import io
import lzma
import struct
import time
import tracemalloc
import zipfile
import zlib
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tellers.data import read_table
from tellers.errors import ConfigError
from tellers.ledger.opening import read_export
from tellers.privacy import Votes
from tellers.privacy._files import MOST_BYTES, TooLarge
from tellers.runs import parse_config, read_config
from tellers.teachers import VoteWriter, read_votes, save_votes, stored_votes
from tellers.teachers.models import dump_model, load_model

GIB = 2**30
SMALL = 64 * 2**20


@contextmanager
def little_memory(most=SMALL):
    """Fail if more memory was set aside than this, at any moment."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most


def deflated(start, n_zeros):
    """Return raw deflate of some bytes and then zeros, made of one block over and over: quick and small."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    last = packer.flush(zlib.Z_FINISH)
    return first + block * (n_zeros // 2**20) + last


def header(shape, dtype="|u1"):
    written = io.BytesIO()
    about = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, about)
    return written.getvalue()


def archive(path, name, content, *, declared, crc=0):
    """Write a zip with one deflated member whose directory says `declared` bytes, whatever is in it."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, content)
        [info] = file.infolist()
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, declared
        info.CRC = crc
    return path


def bomb(path, name="ballots.npy", n_bytes=8 * GIB, shape=None):
    start = header(shape or (n_bytes // 2**20, 2**20))
    return archive(path, name, deflated(start, n_bytes), declared=len(start) + n_bytes)


READERS = {
    "votes": ("ballots.npy", lambda path: read_votes(path, n_classes=2)),
    "votes on labels": ("label_ballots.npy", lambda path: read_votes(path, kind="labels")),
    "a table": ("X.npy", lambda path: read_table(path, "y")),
    "a model": ("some.npy", lambda path: load_model(path.read_bytes())),
}


@pytest.mark.parametrize("reader", READERS)
def test_eight_gigabytes_of_zeros_are_refused_by_what_they_declare(tmp_path, reader):
    name, read = READERS[reader]
    path = bomb(tmp_path / "bomb.npz", name)
    assert path.stat().st_size < 10 * 2**20
    dump_model(LogisticRegression())  # what a reader needs is there: imports are no matter of the file's
    began = time.process_time()
    with little_memory(), pytest.raises(ValueError, match=r"at most 2 GiB in .*got 8 GiB.*TELLERS_MAX_BYTES"):
        read(path)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("reader", ["votes", "votes on labels", "a table", "a model"])
def test_a_small_array_that_says_it_is_large_is_refused(tmp_path, reader):
    name, read = READERS[reader]
    start = header((8 * 2**10, 2**20))
    told = archive(tmp_path / "told.npz", name, deflated(start, 2**20), declared=len(start) + 2**20)
    with little_memory(), pytest.raises(ValueError, match="at most 2 GiB"):
        read(told)
    # Below the cap, and still more than the archive says there is.
    start = header((2**10, 2**20))
    told = archive(tmp_path / "less.npz", name, deflated(start, 2**20), declared=len(start) + 2**20)
    with little_memory(), pytest.raises(ValueError, match=r"damaged|something else"):
        read(told)


def test_a_stream_longer_than_the_archive_says_is_read_no_further(tmp_path):
    start = header((4, 5))
    path = archive(tmp_path / "long.npz", "ballots.npy", deflated(start, GIB), declared=len(start) + 20)
    with little_memory(), pytest.raises(ValueError, match="damaged"):
        read_votes(path, n_classes=2)


def test_an_npy_whose_header_says_more_than_the_file_is_refused(tmp_path):
    path = tmp_path / "votes.npy"
    for shape, says in (((8 * 2**10, 2**20), "at most 2 GiB"), ((2**10, 2**20), "damaged")):
        path.write_bytes(header(shape) + bytes(100))
        with little_memory(), pytest.raises(ValueError, match=says):
            read_votes(path, n_classes=2)


def test_entries_of_no_size_are_counted(tmp_path):
    start = header((2**40,), "<U0")
    path = archive(
        tmp_path / "words.npz", "y.npy", deflated(start, 0), declared=len(start), crc=zlib.crc32(start)
    )
    with little_memory(), pytest.raises(ValueError, match="at most 2 GiB"):
        read_table(path, "y")


def test_the_environment_raises_and_lowers_the_cap(tmp_path, monkeypatch):
    votes = Votes.from_ballots(np.zeros((50, 400), dtype=np.int64), n_classes=2)
    save_votes(tmp_path / "votes.npz", votes)
    monkeypatch.setenv("TELLERS_MAX_BYTES", "20000")
    with pytest.raises(
        TooLarge, match=r"19.5 KiB in votes.npz, got 19.7 KiB or more. .* set TELLERS_MAX_BYTES="
    ):
        read_votes(tmp_path / "votes.npz", n_classes=2)
    monkeypatch.setenv("TELLERS_MAX_BYTES", str(2 * MOST_BYTES))
    assert len(read_votes(tmp_path / "votes.npz", n_classes=2).votes) == 400
    monkeypatch.setenv("TELLERS_MAX_BYTES", "4 GB")
    with pytest.raises(ValueError, match="whole number of bytes in TELLERS_MAX_BYTES"):
        read_votes(tmp_path / "votes.npz", n_classes=2)


def test_parts_that_declare_too_many_queries_are_refused(tmp_path):
    with VoteWriter(tmp_path / "votes") as writer:
        writer.append(Votes.from_ballots([[0, 1, 1], [0, 1, 0]], n_classes=2))
    head = tmp_path / "votes" / "votes.json"
    head.write_text(head.read_text().replace("[3]", f"[{10**12}]"))
    with little_memory(), pytest.raises(ValueError, match="at most 2 GiB"):
        stored_votes(tmp_path / "votes").tallies()


def test_a_packed_table_is_unpacked_no_further_than_the_cap(tmp_path, monkeypatch):
    rows = b"a,y\n" + b"1,0\n" * 10**6
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(rows))
    (tmp_path / "rows.csv.xz").write_bytes(lzma.compress(rows[:2000]) + lzma.compress(bytes(50 * 2**20)))
    (tmp_path / "rows.csv").write_bytes(rows)
    monkeypatch.setenv("TELLERS_MAX_BYTES", "1000000")
    for name in ("rows.csv.gz", "rows.csv.xz", "rows.csv"):
        with little_memory(16 * 2**20), pytest.raises(ValueError, match=f"at most 977 KiB in {name}"):
            read_table(tmp_path / name, "y")


def test_a_gzip_of_eight_gigabytes_ends_at_the_cap(tmp_path, monkeypatch):
    body = deflated(b"a,y\n", 8 * GIB)
    tail = struct.pack("<LL", 0, 8 * GIB % 2**32)
    (tmp_path / "rows.csv.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + body + tail)
    monkeypatch.setenv("TELLERS_MAX_BYTES", str(16 * 2**20))
    with little_memory(), pytest.raises(ValueError, match=r"at most 16 MiB in rows\.csv\.gz"):
        read_table(tmp_path / "rows.csv.gz", "y")


def test_packed_tables_of_several_streams_are_still_read(tmp_path):
    parts = [b"a,y\n1,0\n", b"2,1\n", b"3,0\n"]
    (tmp_path / "rows.csv.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    (tmp_path / "rows.csv.xz").write_bytes(b"".join(map(lzma.compress, parts)))
    for name in ("rows.csv.gz", "rows.csv.xz"):
        assert read_table(tmp_path / name, "y").y.tolist() == [0, 1, 0]


def test_a_parquet_file_is_refused_by_its_own_count_of_rows(tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    column = pa.array(np.zeros(10**6, dtype=np.int8))
    parquet.write_table(pa.table({"a": column, "y": column}), tmp_path / "rows.parquet")
    assert (tmp_path / "rows.parquet").stat().st_size < 10**4
    monkeypatch.setenv("TELLERS_MAX_BYTES", "1000000")
    with pytest.raises(ValueError, match=r"at most 977 KiB in rows\.parquet"):
        read_table(tmp_path / "rows.parquet", "y")


def test_a_model_that_fits_is_loaded():
    fitted = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    assert load_model(dump_model(fitted)).predict([[1.0]]).tolist() == [1]


def test_an_export_of_a_ledger_ends_at_the_cap(monkeypatch):
    class Endless(io.TextIOBase):
        def readline(self, size=-1):
            return "x" * min(size, 10**6)

    monkeypatch.setenv("TELLERS_MAX_BYTES", str(8 * 2**20))
    with little_memory(), pytest.raises(ValueError, match="at most 8 MiB in the export"):
        read_export(Endless())


def test_settings_are_refused_by_their_length(tmp_path):
    path = tmp_path / "tellers.toml"
    with path.open("wb") as file:
        file.write(b'seed = "')
        file.truncate(50 * 2**20)
    began = time.process_time()
    with little_memory(), pytest.raises(ConfigError, match=r"at most 1 MiB in tellers\.toml, got 50 MiB"):
        read_config(path)
    with pytest.raises(ConfigError, match="at most 1048576 characters"):
        parse_config(f'seed = "{"x" * 2**21}"')
    with pytest.raises(ConfigError, match="keys of at most 32 names"):
        parse_config(".".join(["a"] * 10_000) + " = 1")
    assert time.process_time() - began < 5
