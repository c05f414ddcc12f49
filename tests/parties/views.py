"""What to make of a view: the engine's messages apart from their framing, leaks, and how uniform bytes are.

A pattern that is looked for must be long enough not to be hit by chance: `needle_length`. Uniformity is a
chi-square of byte values at each of the eight places of a word.
"""

import math
import struct
from collections import defaultdict

import numpy as np
from scipy import stats

MAGIC = b"PRPC"


def engine_messages(raw):
    """Yield (channel, value) for each message that the engine pushed over one connection; replies have none.

    Each begins with a magic word and two lengths, then a header of its own and a record: the sender's rank,
    a key such as "link-1:P2P-7:1->0" and a number, and the value.
    """
    at = 0
    while at + 4 <= len(raw):
        assert raw[at : at + 4] == MAGIC, "not a message of the engine"
        if at + 12 > len(raw):
            return
        n_body, n_meta = struct.unpack(">II", raw[at + 4 : at + 12])
        if at + 12 + n_body > len(raw):
            return  # where keeping ended, or the party did
        fields = record(raw[at + 12 + n_meta : at + 12 + n_body])
        at += 12 + n_body
        if 2 in fields:
            yield fields[2].split(b":")[0].split(b"\x01")[0].decode(), fields.get(3, b"")


def record(data):
    """Return the fields of a record: number -> bytes; whole numbers are passed over."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            _, at = _varint(data, at)
        else:
            assert tag & 7 == 2, "a field of the engine's messages that is not known"
            n, at = _varint(data, at)
            fields[tag >> 3] = data[at : at + n]
            at += n
    return fields


def _varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def engine_channels(view, name):
    """Return what a party received from another's engine: channel -> the values of its messages."""
    found = defaultdict(list)
    for place in sorted(view.glob(f"engine.{name}.*.bin")):
        for channel, value in engine_messages(place.read_bytes()):
            found[channel].append(value)
    return found


def uniformity(data):
    """Return the p-value of bytes being uniform, at each place of a word of eight, and chi2 per degree."""
    words = np.frombuffer(data[: len(data) // 8 * 8], dtype=np.uint8).reshape(-1, 8)
    counts = np.stack([np.bincount(column, minlength=256) for column in words.T])
    expected = len(words) / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    freedom = 8 * 255
    return float(stats.chi2.sf(statistic, freedom)), statistic / freedom


def needle_length(n_bytes, n_needles, *, rate=1e-9):
    """Return how long patterns must be for a chance hit in uniform bytes to be rarer than that."""
    return math.ceil(math.log(n_bytes * n_needles / rate, 256))


def needles(numbers, *, width, step=1):
    """Return runs of `width` neighbouring numbers as bytes, but for those of one number again and again."""
    flat = np.ascontiguousarray(numbers).ravel()
    size, raw = flat.itemsize, flat.tobytes()
    runs = {raw[i * size : (i + width) * size] for i in range(0, len(flat) - width + 1, step)}
    return {run for run in runs if len({run[i : i + size] for i in range(0, len(run), size)}) > 1}


def written(numbers, *, width=2, step=1):
    """Return runs of numbers in the ways they could be written: words of either order, floats, digits."""
    found = set()
    for kind in ("<i8", ">i8", "<f8", ">f8"):
        if np.issubdtype(np.asarray(numbers).dtype, np.floating) and kind[1] == "i":
            continue
        runs = needles(np.asarray(numbers).astype(kind), width=width, step=step)
        found |= runs
        if kind[0] == "<":
            found |= {run.hex().encode() for run in runs}
    return found


def written_small(numbers):
    """Return long runs of numbers of few values, such as votes and noise: as words, bytes, and bits.

    Every 160 numbers in a row hold one of them whole, and 192 as bits.
    """
    flat = np.asarray(numbers).ravel()
    found = written(flat, width=128, step=32) | needles(flat.astype(np.int8), width=128, step=32)
    if set(np.unique(flat)) <= {0, 1}:
        for order in ("big", "little"):
            found |= needles(np.packbits(flat.astype(np.uint8), bitorder=order), width=16, step=8)
    return found


def leaks(streams, secrets):
    """Return the names of the secrets of which a run stands in a stream; `secrets` has runs by name."""
    stream = bytes(64).join(streams)  # nothing that is looked for goes on over so many zeros
    found = sightings(stream, set().union(*secrets.values()))
    return sorted(name for name, runs in secrets.items() if not found.isdisjoint(runs))


def sightings(stream, patterns):
    """Return the patterns that stand somewhere in a stream, at any byte.

    All are of at least eight bytes. Each is known by one of its words, the one with most different bytes; the
    stream is read as words at all eight offsets, and where a known word stands the rest is compared. Most
    words are no known ones by a look at some of their bits.
    """
    known = defaultdict(list)
    for pattern in patterns:
        # Looking at a few words is enough, and shorter.
        place = max(range(0, min(len(pattern), 72) - 7, 4), key=lambda i: len(set(pattern[i : i + 8])))
        known[pattern[place : place + 8]].append((place, pattern))
    wanted = np.sort(np.frombuffer(b"".join(known), dtype="<u8"))
    maybe = np.zeros(1 << 22, dtype=np.bool_)
    maybe[_some_bits(wanted)] = True
    found = set()
    for offset in range(8):
        words = np.frombuffer(stream, dtype="<u8", count=max(0, len(stream) - offset) // 8, offset=offset)
        near = np.flatnonzero(maybe[_some_bits(words)])
        for hit in near[np.isin(words[near], wanted)].tolist():
            start = offset + 8 * hit
            for place, pattern in known[stream[start : start + 8]]:
                if start >= place and stream[start - place : start - place + len(pattern)] == pattern:
                    found.add(pattern)
    return found


def _some_bits(words):
    """Return 22 bits of each word that depend on all of its bytes."""
    return (words * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(42)
