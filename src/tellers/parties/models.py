"""Models as whole numbers for vote programs, and parties that do not know every label."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._ring import Integers
from .programs import Model, Task, VoteProgram

# Weights are multiplied by a scale that stays private and rounded once. The scale is the largest for which
# no input within the public bound can leave the ring, whatever the weights, so a vote is exact: it is the
# vote of the rounded model on the rounded input. A score may be multiplied by any positive number: neither
# an arg max nor a comparison with zero notices.

Floats = NDArray[np.float64]
Layers = list[tuple[Floats, Floats]]

_ROOM: Final = 2**60  # No score passes this; a class that a party does not know lies twice as far below.
NEVER: Final = -(2**61)
_LEAST_BITS: Final = 6
_UNREACHED: Final = 2**50  # No encoded input is as large, so nobody turns right at this limit.
SHARE: Final = 2**24  # Units of a leaf's class shares.
_LINEAR: Final = (
    "LogisticRegression", "LogisticRegressionCV", "SGDClassifier", "LinearSVC", "RidgeClassifier"
)  # fmt: skip


def program_for(
    estimator: Any,
    n_features: int,
    *,
    task: Task,
    n_outputs: int,
    batch: int,
    input_bound: float,
    input_bits: int = 16,
    max_labels: int | None = None,
) -> VoteProgram:
    """Return the public program that fits an estimator, from its settings alone; it need not be fitted.

    Linear models, `MLPClassifier`, `DecisionTreeClassifier` and small `RandomForestClassifier`, one-vs-rest
    or multi-output for many labels, and pipelines that scale first. Trees must declare a `max_depth`: the
    depth a tree happened to grow to would tell of the data.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> tree = DecisionTreeClassifier(max_depth=4)
    >>> program = program_for(tree, 64, task="single", n_outputs=10, batch=100, input_bound=16)
    >>> program.model, program.n_trees, program.depth
    ('forest', 1, 4)
    """
    shape: dict[str, Any] = {}
    model: Model
    inner = last_estimator(estimator)
    kind = type(inner).__name__
    per_label = 1
    if kind in ("OneVsRestClassifier", "MultiOutputClassifier"):
        inner, per_label = inner.estimator, n_outputs
        kind = type(inner).__name__
    settings = inner.get_params() if hasattr(inner, "get_params") else {}
    if kind in ("DecisionTreeClassifier", "RandomForestClassifier"):
        if not settings["max_depth"]:
            raise ValueError(
                f"Expected a declared max_depth for {kind}, got none. Set one, such as max_depth=4."
            )
        shape = {
            "n_trees": per_label * int(settings.get("n_estimators", 1)),
            "depth": int(settings["max_depth"]),
        }
        model = "forest"
    elif kind == "MLPClassifier" and per_label == 1:
        sizes = settings["hidden_layer_sizes"]
        shape = {"hidden": tuple(np.atleast_1d(np.asarray(sizes, dtype=np.int64)).tolist())}
        model = "network" if shape["hidden"] else "linear"
        if settings["activation"] != "relu" and shape["hidden"]:
            raise ValueError(f"Expected activation='relu', got activation={settings['activation']!r}.")
    elif kind in _LINEAR:
        model = "linear"
    else:
        raise ValueError(
            "Expected a linear model, MLPClassifier, DecisionTreeClassifier or RandomForestClassifier, "
            f"got {kind}."
        )
    return VoteProgram(
        model=model, task=task, n_features=n_features, n_outputs=n_outputs, batch=batch,
        max_labels=max_labels, input_bits=input_bits, input_bound=input_bound, **shape,
    )  # fmt: skip


def encode_model(
    program: VoteProgram,
    estimator: Any,
    *,
    classes: Sequence[Any] | None = None,
    thresholds: ArrayLike | None = None,
    abstain_below: float | None = None,
) -> dict[str, Integers]:
    """Return a fitted estimator as whole numbers, one array for each of the program's model slots; private.

    `classes` names the outputs in their public order, 0 .. n_outputs - 1 unless told. A class (or, where
    estimators are given per label, a label) that the estimator does not know is never voted for. `thresholds`
    are probabilities at which a label is said yes to, one half unless told. Where the program lets parties
    abstain, `abstain_below` is the score below which the best class gets no vote: of linear models and
    networks a score as in `decision_function`, of trees the mean share of a class in the leaves.

    Guarantee: no input within the program's bound makes a score of 2^60 or more, so nothing wraps around.
    Assumes:   thresholds on probabilities belong to models whose score is a log-odds.

    >>> from sklearn.linear_model import LogisticRegression
    >>> fitted = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> program = program_for(fitted, 1, task="single", n_outputs=3, batch=1, input_bound=1)
    >>> encode_model(program, fitted)["offsets0"].shape
    (3,)
    """
    names = list(range(program.n_outputs)) if classes is None else list(classes)
    if len(names) != program.n_outputs or len(set(names)) != len(names):
        raise ValueError(f"Expected {program.n_outputs} different classes, got {len(names)}.")
    at: Floats = np.full(program.n_outputs, 0.5)
    if thresholds is not None:
        at = np.asarray(thresholds, dtype=np.float64)
    if at.shape != (program.n_outputs,) or not ((at > 0) & (at < 1)).all():
        raise ValueError(f"Expected {program.n_outputs} thresholds between 0 and 1, got others.")
    if abstain_below is not None and (not program.abstaining or not np.isfinite(abstain_below)):
        raise ValueError("Expected abstain_below as a number, and only where all agreed on abstaining.")
    if program.model == "forest":
        encoded = _encode_forest(program, estimator, names, at, abstain_below)
    else:
        layers, known = _layers(program, estimator, names)
        if program.task == "multi":
            weights, offsets = layers[-1]
            layers[-1] = (weights, offsets - np.log(at / (1 - at)))
        encoded = _encode_layers(program, layers, known, abstain_below)
    for slot in program.model_slots:
        if encoded[slot.name].shape != slot.shape:
            raise ValueError(
                f"Expected {slot.name} of shape {slot.shape}, got {encoded[slot.name].shape}: "
                "the estimator has another shape than the program."
            )
    return encoded


def last_estimator(estimator: Any) -> Any:
    """Return what votes: the last step of a pipeline, or the estimator itself."""
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


def _scaling(estimator: Any, n_features: int) -> tuple[Floats, Floats]:
    """Return a and b such that the steps before the last one turn x into a x + b."""
    scale: Floats = np.ones(n_features)
    shift: Floats = np.zeros(n_features)
    for name, step in getattr(estimator, "steps", [])[:-1]:
        kind = type(step).__name__
        if kind == "StandardScaler":
            factor: Any = 1.0 if step.scale_ is None else 1 / step.scale_
            moved: Any = 0.0 if step.mean_ is None else -step.mean_ * factor
        elif kind == "MinMaxScaler" and not step.clip:
            factor, moved = step.scale_, step.min_
        elif kind == "MaxAbsScaler":
            factor, moved = 1 / step.scale_, 0.0
        else:
            raise ValueError(f"Expected steps that only scale before the model, got {kind} as step {name!r}.")
        scale, shift = scale * factor, shift * factor + moved
    return scale, shift


def _layers(program: VoteProgram, estimator: Any, names: list[Any]) -> tuple[Layers, NDArray[np.bool_]]:
    """Return a model's layers with outputs in public order, and which outputs it knows."""
    inner = last_estimator(estimator)
    per_label = getattr(inner, "estimators_", None)
    if per_label is not None:
        # One-vs-rest may leave labels out that all rows, or none, have.
        columns = [_one_column(e, program.n_features) for e in per_label]
        layers = [(np.column_stack([w for w, _ in columns]), np.array([b for _, b in columns]))]
        own = getattr(inner, "classes_", None)
        own = list(range(len(columns))) if own is None or np.ndim(own) != 1 else list(own)
        if program.n_outputs == len(columns) == 1:
            own = names[:1]  # one label of yes and no, whatever its two sides are called
    else:
        if hasattr(inner, "coefs_"):
            layers = [
                (np.asarray(w, float), np.asarray(b, float)) for w, b in zip(inner.coefs_, inner.intercepts_)
            ]
        else:
            offsets = np.atleast_1d(np.asarray(inner.intercept_, dtype=np.float64))
            weights = np.atleast_2d(np.asarray(inner.coef_, dtype=np.float64)).T
            layers = [(weights, np.broadcast_to(offsets, (weights.shape[1],)).copy())]
        own = list(inner.classes_)
        if program.task == "single" and layers[-1][0].shape[1] == 1:
            # A score for the second of two classes, against zero for the first.
            weights, offsets = layers[-1]
            layers[-1] = (np.column_stack([0 * weights, weights]), np.concatenate([[0.0], offsets]))
        elif program.task == "multi" and layers[-1][0].shape[1] == 1 and len(own) == 2:
            own = names[:1] if program.n_outputs == 1 else own[1:]
    scale, shift = _scaling(estimator, program.n_features)
    weights, offsets = layers[0]
    if weights.shape[0] != program.n_features:
        raise ValueError(f"Expected a model of {program.n_features} features, got {weights.shape[0]}.")
    layers[0] = (weights * scale[:, None], offsets + shift @ weights)
    weights, offsets = layers[-1]
    if len(own) != weights.shape[1]:
        raise ValueError(
            f"Expected one score per class, got {weights.shape[1]} scores for {len(own)} classes."
        )
    placed, known = _place(own, names)
    wide, biases = np.zeros((weights.shape[0], program.n_outputs)), np.zeros(program.n_outputs)
    wide[:, placed], biases[placed] = weights, offsets
    layers[-1] = (wide, biases)
    return layers, known


def _one_column(estimator: Any, n_features: int) -> tuple[Floats, float]:
    constant = getattr(estimator, "y_", None)
    if constant is not None:  # scikit-learn's stand-in for a label without two sides
        return np.zeros(n_features), 1.0 if np.ravel(constant)[0] else -1.0
    weights = np.asarray(estimator.coef_, dtype=np.float64)
    if weights.shape[0] != 1:
        raise ValueError(f"Expected one score per label, got {weights.shape[0]}.")
    return weights[0], float(np.ravel(estimator.intercept_)[0])


def _place(own: list[Any], names: list[Any]) -> tuple[list[int], NDArray[np.bool_]]:
    where = {name: i for i, name in enumerate(names)}
    strange = [c for c in own if c not in where]
    if strange:
        raise ValueError(f"Expected classes among the {len(names)} public ones, got {len(strange)} others.")
    placed = [where[c] for c in own]
    known = np.zeros(len(names), dtype=np.bool_)
    known[placed] = True
    return placed, known


def _encode_layers(
    program: VoteProgram, layers: Layers, known: NDArray[np.bool_], abstain_below: float | None
) -> dict[str, Integers]:
    for bits in range(30, _LEAST_BITS - 1, -1):
        encoded: dict[str, Integers] = {}
        unit, size = float(2**program.input_bits), float(program.largest_input)
        for n, (weights, offsets) in enumerate(layers):
            scale = 2**bits / max(float(np.abs(weights).max(initial=0.0)), 2.0**-20)
            unit *= scale
            whole, moved = np.rint(weights * scale), np.rint(offsets * unit)
            size = float((np.abs(whole).sum(axis=0) * size + np.abs(moved)).max())
            if size >= _ROOM:
                break
            encoded |= {f"weights{n}": whole.astype(np.int64), f"offsets{n}": moved.astype(np.int64)}
        else:
            encoded[f"offsets{len(layers) - 1}"][~known] = NEVER
            return encoded | _least(program, abstain_below, unit)
    raise ValueError(
        f"Expected a model whose scores fit 60 bits with {_LEAST_BITS} bits per weight, got a larger one. "
        "Use fewer input_bits, a smaller input_bound or fewer layers."
    )


def _least(program: VoteProgram, abstain_below: float | None, unit: float) -> dict[str, Integers]:
    """Return the limit that the best score must reach, where there is one: out of reach unless told."""
    if not program.has_least:
        return {}
    units = -_ROOM if abstain_below is None else np.ceil(np.clip(abstain_below * unit, -_ROOM, _ROOM))
    return {"least": np.array([int(units)], dtype=np.int64)}


def _encode_forest(
    program: VoteProgram, estimator: Any, names: list[Any], at: Floats, abstain_below: float | None
) -> dict[str, Integers]:
    inner = last_estimator(estimator)
    if inner is not estimator:
        raise ValueError("Expected trees without scaling before them, got a pipeline. Trees do not need it.")
    n_inner, n_leaves = 2**program.depth - 1, 2**program.depth
    features = np.zeros((program.n_features, program.n_decisions), dtype=np.int64)
    limits = np.full(program.n_decisions, _UNREACHED, dtype=np.int64)
    leaves = np.zeros((program.n_leaves, program.n_outputs), dtype=np.int64)
    trees, per_output = _trees(program, inner, names, abstain_below)
    if len(trees) > program.n_trees:
        raise ValueError(f"Expected at most {program.n_trees} trees, got {len(trees)}.")
    for n, (tree, shares) in enumerate(trees):
        if tree.max_depth > program.depth:
            raise ValueError(f"Expected trees of depth {program.depth} at most, got a deeper one.")
        # (node of the fitted tree, place in the complete tree, level)
        waiting = [(0, 0, 0)]
        while waiting:
            node, place, level = waiting.pop()
            split = tree.children_left[node] != tree.children_right[node]
            if level == program.depth:
                leaves[n * n_leaves + place - n_inner] = shares[node]
                continue
            if split:
                features[tree.feature[node], n * n_inner + place] = 1
                # Rounded down: an input on the grid is compared exactly, ties at the limit included.
                units = np.floor(float(tree.threshold[node]) * 2**program.input_bits)
                limits[n * n_inner + place] = int(np.clip(units, -_UNREACHED, _UNREACHED))
            left, right = (tree.children_left[node], tree.children_right[node]) if split else (node, node)
            waiting += [(int(left), 2 * place + 1, level + 1), (int(right), 2 * place + 2, level + 1)]
    offsets = np.zeros(program.n_outputs, dtype=np.int64)
    if program.task == "multi":
        offsets = -np.ceil(at * per_output * SHARE).astype(np.int64)
        offsets[per_output == 0] = -SHARE
    elif program.n_trees > 1:
        offsets[per_output == 0] = -SHARE * (program.n_trees + 1)
    least = _least(program, abstain_below, float(len(trees) * SHARE))
    return {"features": features, "limits": limits, "leaves": leaves, "offsets": offsets, **least}


def _trees(
    program: VoteProgram, inner: Any, names: list[Any], abstain_below: float | None
) -> tuple[list[tuple[Any, Integers]], Integers]:
    """Return every tree with its nodes' scores in public order, and how many trees speak of each output."""
    per_label = type(inner).__name__ in ("OneVsRestClassifier", "MultiOutputClassifier")
    found: list[tuple[Any, Integers]] = []
    n_about = np.zeros(program.n_outputs, dtype=np.int64)
    for k, grown in enumerate(inner.estimators_ if per_label else [inner]):
        if getattr(grown, "y_", None) is not None:
            raise ValueError("Expected rows with and without every label, got a label without one side.")
        own = grown.classes_
        for member in getattr(grown, "estimators_", [grown]):
            tree = member.tree_
            shares = tree.value / tree.value.sum(axis=2, keepdims=True)
            table = np.zeros((len(shares), program.n_outputs))
            if isinstance(own, list):  # many labels in one tree
                for label, sides in enumerate(own):
                    if 1 in sides:
                        table[:, label] = shares[:, label, list(sides).index(1)]
                n_about += 1
            elif per_label:
                table[:, k] = shares[:, 0, -1]
                n_about[k] += 1
            elif program.task == "multi" and program.n_outputs == 1 and len(own) == 2:
                table[:, 0] = shares[:, 0, 1]
                n_about += 1
            else:
                placed, known = _place(list(own), names)
                table[:, placed] = shares[:, 0]
                n_about += known
            if program.task == "single" and program.n_trees == 1:
                sure = table.max(axis=1) >= (-1.0 if abstain_below is None else abstain_below)
                table = np.eye(program.n_outputs)[table.argmax(axis=1)] * sure[:, None] / SHARE
            found.append((tree, np.rint(table * SHARE).astype(np.int64)))
    return found, n_about


# --- Label sets ---
#
# Which labels a party knows is public and part of what all agree on; an empty set stands for all. A label is
# decided by a majority, or a share, of those of the answering parties that know it.

Labels = tuple[int, ...]


def count_voters(parties: Iterable[str], label_sets: Mapping[str, Labels], n_outputs: int) -> Labels:
    """Return how many of some parties know each label, or nothing where all know all."""
    counts = np.zeros(n_outputs, dtype=np.int64)
    n = 0
    for party in parties:
        n += 1
        known = label_sets.get(party, ())
        counts[list(known) if known else slice(None)] += 1
    return () if (counts == n).all() else tuple(counts.tolist())


def n_model_outputs(estimator: Any) -> int:
    """Return on how many labels a fitted estimator votes."""
    inner = last_estimator(estimator)
    if type(inner).__name__ in ("OneVsRestClassifier", "MultiOutputClassifier"):
        return len(inner.estimators_)
    if hasattr(inner, "n_outputs_"):
        return int(inner.n_outputs_)
    return int(np.atleast_2d(inner.coef_).shape[0])


def encode_known(
    program: VoteProgram,
    estimator: Any,
    labels: Sequence[int] = (),
    *,
    abstain_below: float | None = None,
) -> dict[str, Integers]:
    """Return the model of a party that knows some labels, as `encode_model` does; it says no to all others.

    The estimator votes on the party's own labels, in their order, or on all of them: then what it says of
    labels that the party does not claim is left out. Empty `labels` stand for all.

    Guarantee: whatever the input, the vote on a label that the party does not claim is 0: its weights are 0
               and its offset is out of reach.
    Assumes:   as `encode_model`.
    """
    if program.task == "single":
        if labels:
            raise ValueError("Expected no set of labels where a vote is for one class, got one.")
        return encode_model(program, estimator, abstain_below=abstain_below)
    if abstain_below is not None:
        raise ValueError("Expected no abstain_below with many labels: say which labels this party knows.")
    n_own, own = n_model_outputs(estimator), list(labels) or list(range(program.n_outputs))
    if own != sorted(set(own)) or not 0 <= own[0] <= own[-1] < program.n_outputs:
        most = program.n_outputs - 1
        raise ValueError(f"Expected labels from 0 to {most}, each once and in increasing order, got {own}.")
    if n_own not in (len(own), program.n_outputs):
        words = f"the {len(own)} labels that this party claims, or for all {program.n_outputs}"
        if not labels:
            words = f"all {program.n_outputs} labels"
        raise ValueError(
            f"Expected a model for {words}, got one for {n_own}. Say which labels it knows by `labels` in "
            "[party] and on its card, or train on those."
        )
    if len(own) == program.n_outputs:
        return encode_model(program, estimator)
    taken = own if n_own == program.n_outputs else list(range(len(own)))
    encoded = encode_model(replace(program, n_outputs=n_own, max_labels=None), estimator)
    last = len(program.widths) - 2
    table, offset, never = ("leaves", "offsets", -SHARE) if program.model == "forest" else (
        f"weights{last}", f"offsets{last}", NEVER
    )  # fmt: skip
    wide = np.zeros((encoded[table].shape[0], program.n_outputs), dtype=np.int64)
    wide[:, own] = encoded[table][:, taken]
    offsets = np.full(program.n_outputs, never, dtype=np.int64)
    offsets[own] = encoded[offset][taken]
    return {**encoded, table: wide, offset: offsets}
