"""The circuits of public programs, and how their matrix products are tiled."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from ..errors import LinkFailed, require_count
from .programs import DecisionProgram, Program, VoteProgram

# --- Tiling of matrix products ---
#
# The engine cuts a product of rows x inner by inner x columns into tiles that fit one polynomial, and packs
# the answers. Several answers of one product share the randomness that hides what made them; a single
# answer does not. So every product is cut here, before the engine sees it, into blocks that are answered by
# one ciphertext.
#
# Whoever encrypts chooses the key, and with a false one reads the other's matrix off the answer: the mask is
# on one half of a ciphertext, and what hides the other half is made with that key. The engine encrypts the
# matrix of fewer tiles, the left one of equally many. So rows are repeated until that is the right one, which
# is always the answerer's: an asker multiplies, and never gets an answer. Each side reads in the log of its
# own engine that it was so.

DEGREE: Final = 8192  # Coefficients per polynomial, for a ring of 64 bits.
_PRODUCT: Final = re.compile(
    r"(\d+)@(\d+)x(\d+)x(\d+) => (\d+)x(\d+)x(\d+) Recv [\d.]+ MiB, Response ([\d.]+) MiB .*\((\w+)\)"
)
_SHALLOW: Final = 32  # Rows of fewer numbers are filled up with zeros, so that answers can be packed.
_FULL_ANSWER: Final = 0.2435  # MiB of one packed ciphertext, the largest that was seen, rounded up.


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@lru_cache(maxsize=4096)
def _tile(rows: int, inner: int, columns: int, packed: bool) -> tuple[int, int, int]:
    """Return how many tiles are above and beside one another, and how many numbers lie between two results.

    The engine weighs ciphertexts in and out (1000), rotations (1) and products (0.1), and of equal choices
    keeps the last.
    """
    best, chosen = float("inf"), (0, 0, 1)
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
                best, chosen = cost, (blocks[0], blocks[2], depth)
            depth = depth * 2 if packed else depth + 1
    return chosen


def plan_product(rows: int, inner: int, columns: int) -> tuple[int, bool]:
    """Return how many ciphertexts answer a secret product of this shape, and if the right side is encrypted.

    The engine plans to pack its answers. Where the plan has a single tile there is nothing to pack, and it
    plans again without, which may give more tiles than one.
    """
    require_count(rows=rows, inner=inner, columns=columns)
    down, across, depth = _tile(rows, inner, columns, True)
    if down * across > 1:
        return _ceil(down * across, depth), down > across
    down, across, _ = _tile(rows, inner, columns, False)
    return down * across, down > across


@lru_cache(maxsize=1024)
def padded_rows(rows: int, inner: int, columns: int) -> int:
    """Return to how many rows a block is filled up: its right side is encrypted then, and the answer is one.

    Zero where no number of rows that was tried does it.
    """
    wider = sorted({n for k in range(1, 14) for n in (2**k, 3 * 2**k) if n > rows})
    return next((n for n in (rows, *wider) if plan_product(n, inner, columns) == (1, True)), 0)


@lru_cache(maxsize=1024)
def single_answer_blocks(rows: int, inner: int, columns: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the rows and the columns of blocks that are computed by themselves.

    The longer side is halved until each block, filled up, is answered by one ciphertext.
    """
    n_rows, n_columns = rows, columns
    while True:
        down, across = _cut(rows, n_rows), _cut(columns, n_columns)
        # The last row and column of blocks may be smaller than the others, and are planned by themselves.
        shapes = {(top.stop - top.start, left.stop - left.start) for top in down for left in across}
        if all(padded_rows(height, inner, width) for height, width in shapes):
            return down, across
        if n_rows == n_columns == 1:
            raise ValueError(f"Expected rows that fit one ciphertext, got {inner} numbers per row.")
        if n_rows >= n_columns:
            n_rows = _ceil(n_rows, 2)
        else:
            n_columns = _ceil(n_columns, 2)


def _cut(length: int, step: int) -> tuple[slice, ...]:
    return tuple(slice(start, min(start + step, length)) for start in range(0, length, step))


def answers_in_log(text: str) -> list[int]:
    """Return, for each secret product in the engine's log, how many ciphertexts it was answered with."""
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


def require_single_answers(found: Sequence[int], *, multiplies: bool) -> None:
    """Refuse if a product was answered by several ciphertexts, or by the wrong side.

    `found` is what `answers_in_log` found in this side's own log: who multiplies is who answers and logs.
    """
    if any(n != 1 for n in found):
        raise LinkFailed("Expected one ciphertext for every product, got more. Use spu 0.9.")
    if multiplies and not found:
        raise LinkFailed("Expected the engine to log its products, it logged none. Use spu 0.9.")
    if found and not multiplies:
        raise LinkFailed("Expected no product to be answered on this side, got one. Use spu 0.9.")


# --- Circuits ---
#
# What costs is comparisons (oblivious transfer) and products (homomorphic encryption); sums and products
# with public numbers are free. So an arg max is a tournament that carries one bit per candidate and no
# index, leaves of trees are reached by one AND per node, and no value is ever rounded.
#
# A vote ends in bits that become numbers, less the mask, and in nothing else. Whatever an asker does before
# that, and as the receiver in that step, each number is then 0 or 1 and one that it knows: selecting numbers
# by a bit, or products, would let it count a vote many times.


def build_circuit(program: Program, numeric: Any = None) -> Callable[..., Any]:
    """Return a program's circuit: a function of its slots, in their order.

    It computes with `jax.numpy`, which the engine compiles; with NumPy it gives in the clear what it gives on
    shares.
    """
    if numeric is None:
        import jax.numpy as numeric  # Comes with the engine, which was asked for before.
    if isinstance(program, VoteProgram):
        return partial(_vote, numeric, program)
    return partial(_decide, numeric, program)


def _product(jnp: Any, x: Any, w: Any) -> Any:
    """Multiply block by block, each answered by one ciphertext; w is the answerer's alone."""
    if (inner := x.shape[1]) < _SHALLOW:
        zeros = jnp.zeros((x.shape[0], _SHALLOW - inner), dtype=jnp.int64)
        x = jnp.concatenate([x, zeros], axis=1)
        w = _joined(jnp, [w] * _ceil(_SHALLOW, inner), axis=0)[:_SHALLOW]
    down, across = single_answer_blocks(x.shape[0], x.shape[1], w.shape[1])
    strips = [[_block(jnp, x[rows], w[:, columns]) for columns in across] for rows in down]
    return _joined(jnp, [_joined(jnp, strip, axis=1) for strip in strips], axis=0)


def _block(jnp: Any, x: Any, w: Any) -> Any:
    rows = x.shape[0]
    filled = padded_rows(rows, x.shape[1], w.shape[1])
    return (_joined(jnp, [x] * _ceil(filled, rows), axis=0)[:filled] @ w)[:rows]


def _joined(jnp: Any, parts: list[Any], *, axis: int) -> Any:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=axis)


def _vote(jnp: Any, program: VoteProgram, x: Any, mask: Any, *model: Any) -> Any:
    least = model[-1] if program.has_least else None
    model = model if least is None else model[:-1]
    if program.model == "forest":
        scores = _forest(jnp, program, x, model)
    else:
        scores = x
        for layer in range(0, len(model), 2):
            scores = _product(jnp, scores, model[layer]) + model[layer + 1]
            if layer + 2 < len(model):
                scores = jnp.maximum(scores, 0)
    if program.task == "multi":
        ballot = scores > 0
        if program.max_labels is not None and program.max_labels < program.n_outputs:
            ballot = _first_labels(jnp, ballot, program.max_labels)
        return ballot.astype(jnp.int64) - mask
    if program.model == "forest" and program.n_trees == 1:
        return (scores > 0).astype(jnp.int64) - mask  # A leaf says which class, or none.
    if least is not None:
        # One more class, the last of equal ones, that nobody counts.
        scores = jnp.concatenate([scores, jnp.broadcast_to(least, (scores.shape[0], 1))], axis=1)
    return _lead(jnp, scores)[:, : program.n_outputs].astype(jnp.int64) - mask


def _first_labels(jnp: Any, ballot: Any, most: int) -> Any:
    """Keep the first `most` ones of each row: the running count says which those are."""
    ones = ballot.astype(jnp.int64)
    counts, columns = ones[:, :1], [ones[:, :1]]
    for k in range(1, ballot.shape[1]):
        counts = counts + ones[:, k : k + 1]
        columns.append(counts)
    # The first `most` labels cannot be one too many.
    early = jnp.concatenate(columns[most:], axis=1) <= most
    return jnp.concatenate([ballot[:, :most], jnp.logical_and(ballot[:, most:], early)], axis=1)


def _lead(jnp: Any, scores: Any) -> Any:
    """Return for each row one bit per column: whether it leads, the first of equal ones.

    A tournament: of two neighbours the larger goes on, and everybody behind the smaller is out. Each column
    keeps one bit, which every later round only ANDs.
    """
    n_rows, n = scores.shape
    alive, groups, values = None, [[i] for i in range(n)], scores
    while len(groups) > 1:
        n_pairs = len(groups) // 2
        left, right = values[:, 0 : 2 * n_pairs : 2], values[:, 1 : 2 * n_pairs : 2]
        right_wins = left < right
        merged = [groups[2 * g] + groups[2 * g + 1] for g in range(n_pairs)]
        # Which pair's bit, and which way round, concerns each column that played.
        pair = [g for g in range(n_pairs) for _ in merged[g]]
        flipped = [i not in groups[2 * g + 1] for g in range(n_pairs) for i in merged[g]]
        # Nobody looks at the value of the last one context.
        going_on = jnp.where(right_wins, right, left) if len(groups) > 2 else right
        bits = jnp.concatenate([right_wins[:, g : g + 1] for g in pair], axis=1)
        bits = jnp.logical_xor(bits, jnp.array([flipped] * n_rows))
        # Columns lie in the order of their groups throughout, so what played is a prefix.
        played = bits.shape[1]
        first = bits if alive is None else jnp.logical_and(bits, alive[:, :played])
        if played < n:
            rest = jnp.ones((n_rows, n - played), dtype=bool) if alive is None else alive[:, played:]
            alive = jnp.concatenate([first, rest], axis=1)
        else:
            alive = first
        if len(groups) % 2:
            going_on = jnp.concatenate([going_on, values[:, -1:]], axis=1)
            merged.append(groups[-1])
        groups, values = merged, going_on
    return alive


def _forest(jnp: Any, program: VoteProgram, x: Any, model: tuple[Any, ...]) -> Any:
    """Walk all trees at once: every node is compared, and one bit per node says whether it was reached."""
    features, limits, leaves, offsets = model
    n_trees, n_nodes = program.n_trees, 2**program.depth - 1
    to_the_right = (_product(jnp, x, features) > limits).reshape(x.shape[0], n_trees, n_nodes)
    right = to_the_right[:, :, :1]
    reached = jnp.stack([jnp.logical_not(right), right], axis=3)
    for level in range(1, program.depth):
        here = reached.reshape(x.shape[0], n_trees, 2**level)
        right = jnp.logical_and(here, to_the_right[:, :, 2**level - 1 : 2 ** (level + 1) - 1])
        reached = jnp.stack([jnp.logical_xor(here, right), right], axis=3)
    at = reached.reshape(x.shape[0], program.n_leaves).astype(jnp.int64)
    return _product(jnp, at, leaves) + offsets


def _decide(
    jnp: Any, program: DecisionProgram, shares: Any, codes: Any, ranged: Any, answer: Any, *checks: Any
) -> Any:
    told = fair = _fair(jnp, program, shares + ranged)
    if program.is_confident:
        bar = jnp.array(program.bar, dtype=jnp.int64)
        passed = shares + checks[0] >= bar
        if program.is_multilabel:
            passed = jnp.logical_or(passed, checks[1] - shares >= bar)
        else:
            passed = jnp.logical_not(_all(jnp, jnp.logical_not(passed)))
        told = jnp.logical_and(fair, passed)
    if program.is_multilabel:
        yes = jnp.logical_and(told, shares + answer >= jnp.array(program.limits, dtype=jnp.int64))
        # What is told is a sum of the first codes: of fair labels one, of those that are told one more.
        bits = jnp.stack([fair, told, yes] if program.is_confident else [fair, yes], axis=2)
        return jnp.where(bits, codes.reshape(bits.shape), 0).sum(axis=2)
    bits = jnp.logical_and(_lead(jnp, shares * program.tie_scale + answer), told)
    if program.is_confident:
        bits = jnp.concatenate([bits, fair], axis=1)
    return jnp.where(bits, codes, 0).sum(axis=1, keepdims=True)


def _fair(jnp: Any, program: DecisionProgram, seen: Any) -> Any:
    """Return whether counts lie where votes can have brought them: a bit per label, or per row of classes."""
    sides = [seen + program.reach, jnp.array(program.totals + program.reach, dtype=jnp.int64) - seen]
    within = _joined(jnp, sides, axis=1) >= 0
    if program.is_multilabel:
        return jnp.logical_and(within[:, : program.n_outputs], within[:, program.n_outputs :])
    return _all(jnp, within)


def _all(jnp: Any, bits: Any) -> Any:
    """Return whether all bits of a row are set, in a column: halves are joined until one is left."""
    while (n := bits.shape[1]) > 1:
        half = n // 2
        joined = jnp.logical_and(bits[:, :half], bits[:, half : 2 * half])
        bits = joined if n % 2 == 0 else jnp.concatenate([joined, bits[:, -1:]], axis=1)
    return bits
