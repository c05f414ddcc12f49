"""How many ciphertexts a secret matrix product answers with, and how to keep that number at one.

The engine cuts a product of rows x inner by inner x columns into tiles that fit one polynomial, and packs the
answers. Several answers of one product share the randomness that hides what made them; a single answer does
not. So every product is cut here, before the engine sees it, into blocks that are answered by one ciphertext,
and the engine's own account of what it sent is read back to see that it was so.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ..errors import LinkFailed, require_count

DEGREE: Final = 8192  # Coefficients per polynomial, for a ring of 64 bits.
_PRODUCT: Final = re.compile(
    r"(\d+)@(\d+)x(\d+)x(\d+) => (\d+)x(\d+)x(\d+) Recv [\d.]+ MiB, Response ([\d.]+) MiB .*\((\w+)\)"
)
_FULL_ANSWER: Final = 0.2435  # MiB of one packed ciphertext, the largest that was seen, rounded up.


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@lru_cache(maxsize=4096)
def _tile(rows: int, inner: int, columns: int, packed: bool) -> tuple[int, int]:
    """Return how many tiles make up the product, and how many numbers lie between two results of one.

    The engine weighs ciphertexts in and out (1000), rotations (1) and products (0.1), and of equal choices
    keeps the last.
    """
    best, chosen = float("inf"), (0, 1)
    for height in range(1, min(DEGREE, rows) + 1):
        depth = 1
        while depth <= inner and height * depth <= DEGREE:
            width = min(columns, DEGREE // height // depth)
            blocks = _ceil(rows, height), _ceil(inner, depth), _ceil(columns, width)
            out = blocks[0] * blocks[2]
            sent = min(blocks[0], blocks[2]) * blocks[1]
            back = _ceil(out, depth) if packed else out
            turns = _ceil(rows * columns, DEGREE) * depth if packed else 0
            cost = 1000.0 * (sent + back) + turns + out * blocks[1] / 10.0
            if cost <= best:
                best, chosen = cost, (out, depth)
            depth = depth * 2 if packed else depth + 1
    return chosen


def count_answers(rows: int, inner: int, columns: int) -> int:
    """Return how many ciphertexts the engine answers a secret product of this shape with.

    It plans to pack its answers. Where the plan has a single tile there is nothing to pack, and it plans
    again without, which may give more tiles than one.

    >>> count_answers(100, 64, 10), count_answers(900, 64, 10), count_answers(30, 20, 16)
    (1, 2, 2)
    """
    require_count(rows=rows, inner=inner, columns=columns)
    tiles, depth = _tile(rows, inner, columns, True)
    return _ceil(tiles, depth) if tiles > 1 else _tile(rows, inner, columns, False)[0]


@dataclass(frozen=True)
class Block:
    """Rows and columns of a product that are computed by themselves.

    >>> Block(rows=slice(0, 100), columns=slice(0, 10)).rows.stop
    100
    """

    rows: slice
    columns: slice


@lru_cache(maxsize=1024)
def single_answer_blocks(rows: int, inner: int, columns: int) -> tuple[Block, ...]:
    """Return blocks, halving the longer side until each is answered by one ciphertext.

    >>> len(single_answer_blocks(100, 64, 10)), len(single_answer_blocks(900, 64, 10))
    (1, 2)
    """
    n_rows, n_columns = rows, columns
    while True:
        blocks = tuple(
            Block(slice(top, min(top + n_rows, rows)), slice(left, min(left + n_columns, columns)))
            for top in range(0, rows, n_rows)
            for left in range(0, columns, n_columns)
        )
        # The last row and column of blocks may be smaller than the others, and are planned by themselves.
        shapes = {(b.rows.stop - b.rows.start, b.columns.stop - b.columns.start) for b in blocks}
        if all(count_answers(height, inner, width) == 1 for height, width in shapes):
            return blocks
        if n_rows == n_columns == 1:
            raise ValueError(f"Expected rows that fit one ciphertext, got {inner} numbers per row.")
        n_rows, n_columns = _next(n_rows, n_columns)


def _next(n_rows: int, n_columns: int) -> tuple[int, int]:
    if n_rows >= n_columns:
        return _ceil(n_rows, 2), n_columns
    return n_rows, _ceil(n_columns, 2)


def answers_in_log(text: str) -> list[int]:
    """Return, for each secret product in the engine's log, how many ciphertexts it was answered with.

    >>> answers_in_log("1@100x64x10 => 12x64x10 Recv 0.176 MiB, Response 0.243 MiB Pack 86.9 ms (interleave)")
    [1]
    >>> answers_in_log("1@1000x3x3 => 1000x3x2 Recv 0.176 MiB, Response 0.29 MiB Pack 0 ms (none)")
    [2]
    """
    found = []
    for line in _PRODUCT.finditer(text):
        batch, rows, _, columns, height, depth, width = (int(n) for n in line.groups()[:7])
        size, packing = float(line[8]), line[9]
        tiles = batch * _ceil(rows, height) * _ceil(columns, width)
        if packing == "none":
            n_answers = tiles
        elif packing == "interleave":
            n_answers = _ceil(tiles, depth)
        else:
            n_answers = _ceil(batch * rows * columns, DEGREE)
        # Two views of the same thing: the plan, and the bytes that went out.
        found.append(max(n_answers, _ceil(round(size * 1e4), round(_FULL_ANSWER * 1e4))))
    return found


def require_single_answers(both: Sequence[Sequence[int]], *, has_products: bool) -> None:
    """Refuse if a product was answered by several ciphertexts, or if neither side's log tells of any product.

    `both` holds what `answers_in_log` found at either side: the side that multiplies is the one that logs.

    >>> require_single_answers([[1, 1], []], has_products=True)
    >>> require_single_answers([[], [2]], has_products=True)
    Traceback (most recent call last):
        ...
    tellers.errors.LinkFailed: Expected one ciphertext for every product, got more. Use spu 0.9.
    """
    found = [n for side in both for n in side]
    if any(n != 1 for n in found):
        raise LinkFailed("Expected one ciphertext for every product, got more. Use spu 0.9.")
    if has_products and not found:
        raise LinkFailed("Expected the engine to log its products, it logged none. Use spu 0.9.")
