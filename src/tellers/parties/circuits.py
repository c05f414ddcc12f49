"""The circuits of public programs: the same text is compiled by both sides, and runs on shares.

What costs is comparisons (oblivious transfer) and products (homomorphic encryption); sums and products with
public numbers are free. So an arg max is a tournament that carries one bit per candidate and no index, leaves
of trees are reached by one AND per node, and no value is ever rounded.
"""

from collections.abc import Callable
from typing import Any

from .programs import DecisionProgram, Program, VoteProgram
from .tiling import single_answer_blocks

Circuit = Callable[..., Any]


def build_circuit(program: Program) -> Circuit:
    """Return a program's circuit: a function of its slots, in their order.

    Run in the clear, a circuit gives what it gives on shares; `clear` computes the same without the engine.

    >>> from tellers.parties.programs import DecisionProgram
    >>> program = DecisionProgram(rule="labels", n_outputs=2, batch=1, n_answerers=3, limits=(2, 2))
    >>> circuit = build_circuit(program)
    >>> circuit.__name__
    'decide'
    """

    if isinstance(program, VoteProgram):

        def vote(x: Any, mask: Any, *model: Any) -> Any:
            return _vote(program, x, mask, model)

        return vote

    def decide(shares: Any, answer: Any, *checks: Any) -> Any:
        return _decide(program, shares, answer, checks)

    return decide


def _numeric() -> Any:
    import jax.numpy as jnp  # Comes with the engine, which was asked for before.

    return jnp


def _product(x: Any, w: Any) -> Any:
    """Multiply block by block, each answered by one ciphertext; see `tiling`."""
    jnp = _numeric()
    blocks = single_answer_blocks(x.shape[0], x.shape[1], w.shape[1])
    strips: dict[int, list[Any]] = {}
    for block in blocks:
        strips.setdefault(block.rows.start, []).append(x[block.rows] @ w[:, block.columns])
    rows = [parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1) for parts in strips.values()]
    return rows[0] if len(rows) == 1 else jnp.concatenate(rows, axis=0)


def _vote(program: VoteProgram, x: Any, mask: Any, model: tuple[Any, ...]) -> Any:
    jnp = _numeric()
    least = model[-1] if program.has_least else None
    model = model if least is None else model[:-1]
    if program.model == "forest":
        scores = _forest(program, x, model)
    else:
        scores = x
        for layer in range(0, len(model), 2):
            scores = _product(scores, model[layer]) + model[layer + 1]
            if layer + 2 < len(model):
                scores = jnp.maximum(scores, 0)
    if program.task == "multi":
        ballot = (scores > 0).astype(jnp.int64)
        if program.max_labels is not None and program.max_labels < program.n_outputs:
            ballot = _first_labels(ballot, program.max_labels)
        return ballot - mask
    if program.model == "forest" and program.n_trees == 1:
        return scores - mask  # A leaf holds its vote already.
    if least is not None:
        # One more class, the last of equal ones, that nobody counts.
        scores = jnp.concatenate([scores, jnp.broadcast_to(least, (scores.shape[0], 1))], axis=1)
    return _lead(scores)[:, : program.n_outputs].astype(jnp.int64) - mask


def _first_labels(ballot: Any, most: int) -> Any:
    """Keep the first `most` ones of each row: the running count says which those are."""
    jnp = _numeric()
    counts, columns = ballot[:, :1], [ballot[:, :1]]
    for k in range(1, ballot.shape[1]):
        counts = counts + ballot[:, k : k + 1]
        columns.append(counts)
    # The first `most` labels cannot be one too many.
    late = jnp.concatenate(columns[most:], axis=1)
    kept = jnp.where(late > most, jnp.zeros_like(late), ballot[:, most:])
    return jnp.concatenate([ballot[:, :most], kept], axis=1)


def _lead(scores: Any) -> Any:
    """Return for each row one bit per column: whether it leads, the first of equal ones.

    A tournament: of two neighbours the larger goes on, and everybody behind the smaller is out. Each column
    keeps one bit, which every later round only ANDs.
    """
    jnp = _numeric()
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
        # Nobody looks at the value of the last one standing.
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


def _forest(program: VoteProgram, x: Any, model: tuple[Any, ...]) -> Any:
    """Walk all trees at once: every node is compared, and one bit per node says whether it was reached."""
    jnp = _numeric()
    features, limits, leaves, offsets = model
    n_trees, n_nodes = program.n_trees, 2**program.depth - 1
    to_the_right = (_product(x, features) > limits).reshape(x.shape[0], n_trees, n_nodes)
    right = to_the_right[:, :, :1]
    reached = jnp.stack([jnp.logical_not(right), right], axis=3)
    for level in range(1, program.depth):
        here = reached.reshape(x.shape[0], n_trees, 2**level)
        right = jnp.logical_and(here, to_the_right[:, :, 2**level - 1 : 2 ** (level + 1) - 1])
        reached = jnp.stack([jnp.logical_xor(here, right), right], axis=3)
    at = reached.reshape(x.shape[0], program.n_leaves).astype(jnp.int64)
    return _product(at, leaves) + offsets


def _decide(program: DecisionProgram, shares: Any, answer: Any, checks: tuple[Any, ...]) -> Any:
    jnp = _numeric()
    if program.is_multilabel:
        given = shares + answer >= jnp.array(program.limits, dtype=jnp.int64)
    else:
        given = _lead(shares * program.tie_scale + answer)
    if not program.is_confident:
        return given.astype(jnp.int64)
    bar = jnp.array(program.bar, dtype=jnp.int64)
    told = jnp.logical_or(shares + checks[0] >= bar, checks[1] - shares >= bar)
    return told.astype(jnp.int64) + jnp.logical_and(told, given).astype(jnp.int64)
