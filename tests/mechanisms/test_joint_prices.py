"""Joint prices and charges by outcome, against every pair of small electorates and a search among large ones.

The laws here are sums written out, of noise added up from its definition: nothing is shared with the code
that is tested.
"""

import itertools
import math

import numpy as np
import pytest

from tellers import ConfidentGNMax, RdpCurve, Unit, Votes, noise
from tellers.mechanisms import gap_envelope
from tellers.mechanisms._joint import Checked, _envelope_at, joint_charges, joint_price
from tellers.mechanisms.base import has_one_price
from tellers.privacy import DEFAULT_ORDERS
from tellers.privacy.release import describe

ORDERS = (1.5, 2.0, 4.0, 8.0, 18.0, 40.0)


# --- The definition, written out. ---


def discrete(sigma):
    """Whole numbers, P[Z = z], P[Z < z], and P[Z >= z] of a discrete Gaussian, from their definition."""
    reach = math.ceil(38 * sigma) + 2
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-(z**2) / (2 * sigma**2))
    mass /= mass.sum()
    below = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
    return z, mass, below, np.cumsum(mass[::-1])[::-1]


def passing(margins, sigma):
    """P[margin + Z >= 0] and P[margin + Z < 0]."""
    z, _, below, from_here = discrete(sigma)
    at = np.clip(-np.asarray(margins) - z[0], 0, z.size - 1)
    return from_here[at], below[at]


def winning(counts, sigma):
    """P[each class has the largest noisy count, ties at random], (histograms, classes)."""
    z, mass, below, _ = discrete(sigma)
    counts = np.asarray(counts)
    n, m = counts.shape
    reach = math.ceil(12 * sigma) + 2
    values = np.arange(counts.min() - reach, counts.max() + reach + 1)
    at = np.clip(values[None, None, :] - counts[:, :, None] - z[0], 0, z.size - 1)
    p, f = mass[at], below[at]  # (histograms, classes, values)
    wins = np.zeros((n, m))
    for j in range(m):
        # With k of the others as high as this one it wins with chance 1 / (k + 1).
        ties = np.zeros((m, n, values.size))
        ties[0] = 1.0
        for i in range(m):
            if i != j:
                ties[1:] = ties[1:] * f[:, i] + ties[:-1] * p[:, i]
                ties[0] = ties[0] * f[:, i]
        wins[:, j] = sum((p[:, j] * ties[k]).sum(axis=1) / (k + 1) for k in range(m))
    return wins / wins.sum(axis=1, keepdims=True)


def confident(counts, *, sigma, threshold, sigma_threshold, belief=None):
    """The law of {silent, class 0, class 1, ...}, (histograms, 1 + classes); of an interactive check too."""
    counts = np.asarray(counts)
    limits = np.full(counts.shape, threshold, dtype=np.float64)
    if belief is not None:
        limits = limits + counts.sum(axis=1, keepdims=True) * np.asarray(belief)
    told, silent = passing((counts - np.ceil(limits).astype(int)).max(axis=1), sigma_threshold)
    return np.concatenate([silent[:, None], told[:, None] * winning(counts, sigma)], axis=1)


def label(pairs, *, sigma, threshold, sigma_threshold):
    """The law of {silent, 0, 1} of a label with s of N votes, (pairs, 3)."""
    s, n = np.asarray(pairs).T
    told, silent = passing(np.maximum(s, n - s) - threshold, sigma_threshold)
    one, zero = passing(s - (n // 2 + 1), sigma)
    return np.stack([silent, told * zero, told * one], axis=1)


def excess(here, there, orders, silent, answered):
    """The largest log E exp((order - 1) (loss - charge)) of these pairs and both directions, per order."""
    with np.errstate(divide="ignore"):
        logs = np.log(here), np.log(there)
    found = []
    for order, c0, c1 in zip(orders, silent, answered, strict=True):
        charge = np.array([c0] + [c1] * (here.shape[1] - 1))
        with np.errstate(invalid="ignore"):  # what neither side can tell adds nothing
            terms = [order * p + (1 - order) * (q + charge) for p, q in (logs, logs[::-1])]
        ways = [np.logaddexp.reduce(np.where(np.isnan(t), -np.inf, t), axis=1) for t in terms]
        found.append(max(float(way.max()) for way in ways))
    return np.array(found)


def histograms(n_teachers, n_classes, fewest=0):
    """Every histogram of so many votes or fewer."""
    every = itertools.product(range(n_teachers + 1), repeat=n_classes)
    return [h for h in every if fewest <= sum(h) <= n_teachers]


def neighbours(every):
    """Pairs of places: a ballot moved, was given, or was kept back; each pair once."""
    place = {h: i for i, h in enumerate(every)}
    pairs = set()
    for h, i in place.items():
        for a in range(len(h)):
            less = tuple(n - (j == a) for j, n in enumerate(h))
            others = [less] + [tuple(n + (j == b) for j, n in enumerate(less)) for b in range(len(h))]
            pairs |= {(min(i, place[o]), max(i, place[o])) for o in others if o in place and o != h}
    return np.array(sorted(pairs))


def settings(n, seed):
    """Random settings of small electorates."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        m = int(rng.integers(2, 5))
        k = int(rng.integers(2, (13, 9, 7)[m - 2]))
        yield {
            "n_teachers": k, "n_classes": m, "threshold": int(rng.integers(-1, k + 3)),
            "sigma": float(np.exp(rng.uniform(-0.5, 2.5))),
            "sigma_threshold": float(np.exp(rng.uniform(-0.5, 2.5))),
        }  # fmt: skip


def law_of(setting):
    return {name: setting[name] for name in ("sigma", "threshold", "sigma_threshold")}


def small_pairs(of, setting, rng):
    """The laws of both sides of every pair of neighbours of a small electorate."""
    if of == "label":
        every = [(s, n) for n in range(1, setting["n_teachers"] + 1) for s in range(n + 1)]
        laws = label(every, **law_of(setting))
        pairs = np.array([(i, i + 1) for i, (s, n) in enumerate(every) if s < n])
    else:
        every = histograms(setting["n_teachers"], setting["n_classes"])
        belief = rng.dirichlet(np.full(setting["n_classes"], 0.5)) if of == "margin" else None
        laws = confident(every, belief=belief, **law_of(setting))
        pairs = neighbours(every)
    return laws[pairs[:, 0]], laws[pairs[:, 1]]


def checked(of, setting):
    two = {"n_classes": 2} if of == "label" else {}
    return Checked(of, **{**setting, **two})


def require_sound(found, what):
    assert (found <= 1e-9).all(), (what, found)


def compare_small(n_settings, seed):
    """Hold every pair of small electorates against prices and charges; return how many and how near."""
    rng, n_compared, nearest = np.random.default_rng(seed), 0, {}
    for setting in settings(n_settings, seed):
        for of in ("classes", "margin", "label"):
            here, there = small_pairs(of, setting, rng)
            setup = checked(of, setting)
            joint = joint_price(setup, ORDERS).values
            both = setup.both(ORDERS)
            assert (joint <= both).all()
            require_sound(excess(here, there, ORDERS, joint, joint), (of, setting))
            for share in (None, 0.0, 0.3, 0.8, 1.0):
                silent, answered = joint_charges(setup, ORDERS, expected_silence=share)
                require_sound(
                    excess(here, there, ORDERS, silent.values, answered.values), (of, setting, share)
                )
            n_compared += 6 * 2 * len(here) * len(ORDERS)
            slack = excess(here, there, ORDERS, np.zeros(len(ORDERS)), np.zeros(len(ORDERS)))
            reached = slack / (np.array(ORDERS) - 1) / joint
            nearest[of] = max(nearest.get(of, 0.0), float(reached[joint < both * (1 - 1e-6)].max(initial=0)))
    return n_compared, nearest


def test_no_pair_of_neighbours_in_a_small_electorate_costs_more():
    n_compared, nearest = compare_small(12, seed=1)
    assert n_compared > 20_000
    # The search is no empty one: where tallies are enumerated, some pair costs all that it may.
    assert nearest["label"] > 0.999
    assert nearest["classes"] > 0.9


@pytest.mark.campaign
def test_no_pair_of_neighbours_in_many_small_electorates_costs_more():
    n_compared, _ = compare_small(400, seed=2)
    assert n_compared > 1_000_000


# --- Large electorates: a search for votes that cost more. ---


def large_pairs(setting, rng, n_pairs):
    """The laws of both sides of neighbours near the worst: two rivals, near the threshold or level."""
    k, m = setting["n_teachers"], setting["n_classes"]
    near = np.clip(rng.normal(setting["threshold"], 1.5 * setting["sigma_threshold"], n_pairs), 0, k)
    top = np.where(rng.random(n_pairs) < 0.6, near, rng.integers(0, k + 1, n_pairs)).astype(int)
    counts = np.zeros((n_pairs, m), dtype=int)
    counts[:, 0] = top
    second = np.minimum(top, k - top)
    counts[:, 1] = np.where(rng.random(n_pairs) < 0.7, second, (second * rng.random(n_pairs)).astype(int))
    for j in range(2, m):  # some of the votes that are left, and some ballots are missing
        left = np.minimum(k - counts.sum(axis=1), top)
        counts[:, j] = np.where(rng.random(n_pairs) < 0.5, left * rng.random(n_pairs), 0).astype(int)
    rows = np.arange(n_pairs)
    source = np.where(rng.random(n_pairs) < 0.6, 0, rng.integers(0, m, n_pairs))
    source = np.where(counts[rows, source] > 0, source, counts.argmax(axis=1))
    alive = counts[rows, source] > 0
    counts, source, rows = counts[alive], source[alive], np.arange(int(alive.sum()))
    moved = counts.copy()
    moved[rows, source] -= 1
    target = np.where(rng.random(rows.size) < 0.6, 1, rng.integers(0, m, rows.size))
    given = (rng.random(rows.size) < 0.7) & (target != source)
    moved[rows[given], target[given]] += 1
    return confident(counts, **law_of(setting)), confident(moved, **law_of(setting))


def large_settings(n, rng):
    for _ in range(n):
        k = int(rng.integers(20, 160))
        spread = k * np.exp(rng.uniform(np.log(0.06), np.log(0.5), 2))
        yield {
            "n_teachers": k, "n_classes": int(rng.integers(2, 6)), "sigma": float(spread[0]),
            "threshold": int(k * rng.uniform(0.1, 1.05)), "sigma_threshold": float(spread[1]),
        }  # fmt: skip


def compare_large(n_settings, n_pairs, seed):
    rng, nearest, n_compared = np.random.default_rng(seed), 0.0, 0
    for setting in large_settings(n_settings, rng):
        here, there = large_pairs(setting, rng, n_pairs)
        setup = checked("classes", setting)
        joint = joint_price(setup, ORDERS).values
        require_sound(excess(here, there, ORDERS, joint, joint), setting)
        for share in (None, 0.6):
            silent, answered = joint_charges(setup, ORDERS, expected_silence=share)
            require_sound(excess(here, there, ORDERS, silent.values, answered.values), (setting, share))
        n_compared += 3 * 2 * len(here) * len(ORDERS)
        none = np.zeros(len(ORDERS))
        nearest = max(
            nearest, (excess(here, there, ORDERS, none, none) / (np.array(ORDERS) - 1) / joint).max()
        )
    return n_compared, nearest


def test_no_votes_of_a_large_electorate_cost_more():
    n_compared, nearest = compare_large(4, 200, seed=3)
    assert n_compared > 20_000
    assert nearest > 0.85


@pytest.mark.campaign
def test_no_votes_of_many_large_electorates_cost_more():
    n_compared, nearest = compare_large(60, 600, seed=4)
    assert n_compared > 1_000_000
    assert nearest > 0.95


# --- Known counterexamples, and faults that are found. ---

FEW = {"n_teachers": 20, "n_classes": 2, "sigma": 20.0, "threshold": 6, "sigma_threshold": 2.0}


def written_price(setting, order, *, first=0, back=True):
    """The theorem as the page prints it, by the envelope; parameters make it wrong on purpose."""
    k = setting["n_teachers"]
    table = gap_envelope(k, setting["n_classes"], sigma=setting["sigma"], order=order)
    worst = 0.0
    for t in range(first, k + 1):
        for there in (t, t - 1):
            if there < 0:
                continue
            answer = (order - 1) * table[max(0, 2 * t - k)]
            for x, y in ((t, there), (there, t)) if back else ((there, t),):
                (px, fx), (py, fy) = (
                    passing(z - setting["threshold"], setting["sigma_threshold"]) for z in (x, y)
                )
                a = order * math.log(fx) + (1 - order) * math.log(fy)
                b = order * math.log(px) + (1 - order) * math.log(py) + answer
                worst = max(worst, np.logaddexp(a, b) / (order - 1))
    return worst


def found(setting, order, silent, answered):
    """How far the largest mean of e^((order - 1) (loss - charge)) is above 1."""
    here, there = small_pairs("classes", setting, None)
    return float(excess(here, there, (order,), [silent], [answered])[0])


def test_missing_votes_cost_more_than_a_full_electorate_can():
    laws = confident([[4, 0], [3, 0]], **law_of(FEW))
    none = np.zeros(1)
    truth = max(excess(laws[:1], laws[1:], (4.0,), none, none)[0], 0) / 3
    assert truth == pytest.approx(0.3444, abs=1e-4)
    assert written_price(FEW, 4.0, first=10) == pytest.approx(0.2845, abs=1e-3)  # from K / m votes on
    assert written_price(FEW, 4.0) == pytest.approx(0.3484, abs=1e-3)
    assert truth <= joint_price(checked("classes", FEW), (4.0,)).values[0] <= written_price(FEW, 4.0)


def test_planted_faults_are_found():
    right = written_price(FEW, 4.0)
    assert found(FEW, 4.0, right, right) <= 0
    # A range that begins at K / m votes, though votes may be missing.
    wrong = written_price(FEW, 4.0, first=10)
    assert found(FEW, 4.0, wrong, wrong) > 0.1
    # One direction of the check alone.
    wrong = written_price(FEW, 4.0, back=False)
    assert found(FEW, 4.0, wrong, wrong) > 0.01
    # The joint price for an answer with the check's price for silence.
    setting = {"n_teachers": 10, "n_classes": 3, "sigma": 2.0, "threshold": 6, "sigma_threshold": 4.0}
    setup = checked("classes", setting)
    joint, check = joint_price(setup, (4.0,)).values[0], setup.check((4.0,))[0]
    assert found(setting, 4.0, joint, joint) <= 0
    assert found(setting, 4.0, check, joint) > 0.01
    # And an answer that is a little too cheap beside it.
    silent, answered = (curve.values[0] for curve in joint_charges(setup, (4.0,)))
    assert found(setting, 4.0, silent, answered) <= 0
    assert found(setting, 4.0, silent, 0.85 * answered) > 0.01


def test_an_interactive_check_is_covered_whatever_the_student_believes():
    rng = np.random.default_rng(5)
    for _ in range(4):
        setting = next(settings(1, int(rng.integers(1 << 30))))
        setup = checked("margin", setting)
        joint = joint_price(setup, ORDERS).values
        for _ in range(3):
            here, there = small_pairs("margin", setting, rng)
            require_sound(excess(here, there, ORDERS, joint, joint), setting)


# --- What the prices are. ---


def epsilon(values, n=1000):
    return (RdpCurve(DEFAULT_ORDERS, values) * n).epsilon(1e-5)


SLOW = pytest.mark.campaign


@pytest.mark.parametrize(
    ("setup", "n", "added_up", "together"),
    [
        (Checked("classes", 50, 10, 10.0, 40, 10.0), 1000, 29.3, 18.4),
        pytest.param(Checked("classes", 250, 10, 40.0, 200, 150.0), 1000, 4.25, 2.45, marks=SLOW),
        pytest.param(Checked("classes", 250, 10, 40.0, 200, 40.0), 1000, 5.25, 3.18, marks=SLOW),
        pytest.param(Checked("classes", 1000, 10, 100.0, 600, 100.0), 1000, 1.87, 1.37, marks=SLOW),
        (Checked("label", 250, 2, 40 / 2**0.5, 200, 150.0), 1000, 4.24, 2.36),
        (Checked("label", 250, 2, 40 / 2**0.5, 200, 40.0), 1000, 5.24, 2.96),
        (Checked("label", 50, 2, 10 / 2**0.5, 40, 10.0), 1000, 29.3, 17.0),
    ],
)  # fmt: skip
def test_a_thousand_answers_cost_what_the_page_says(setup, n, added_up, together):
    grid = tuple(DEFAULT_ORDERS.tolist())
    assert epsilon(setup.both(grid), n) == pytest.approx(added_up, rel=3e-3)
    assert epsilon(joint_price(setup, grid).values, n) == pytest.approx(together, rel=4e-3)


def test_prices_do_not_depend_on_the_grid_and_do_not_fall():
    setup = Checked("classes", 30, 4, 6.0, 20, 8.0)
    grid = tuple(DEFAULT_ORDERS.tolist())
    whole = joint_price(setup, grid).values
    for order in (1.25, 3.25, 18.0, 57.0, 100.0, 512.0):
        assert joint_price(setup, (order,)).values[0] == whole[grid.index(order)]
    for share in (None, 0.0, 0.5, 0.9, 1.0):
        pair = [curve.values for curve in joint_charges(setup, grid, expected_silence=share)]
        assert (np.diff(np.maximum(*pair)) >= 0).all()
    # Between the orders at which an envelope is worked out, it is joined by chords, which lie above it.
    for order in (13.0, 23.0, 57.0, 100.0):
        exact = gap_envelope(30, 4, sigma=6.0, order=order)
        joined = _envelope_at(setup, order)
        assert (joined >= exact * (1 - 2e-3)).all()
        assert joined[0] <= 1.02 * exact[0]


def test_expecting_silence_makes_it_cheaper_and_answers_dearer():
    setup, order = Checked("classes", 60, 4, 10.0, 45, 10.0), (18.0,)
    joint, check, both = joint_price(setup, order).values[0], setup.check(order)[0], setup.both(order)[0]
    before = (math.inf, 0.0)
    for share in (0.0, 0.3, 0.6, 0.8, 0.9, 0.97, 1.0):
        silent, answered = (c.values[0] for c in joint_charges(setup, order, expected_silence=share))
        assert silent <= before[0]
        assert answered >= before[1]
        before = silent, answered
        mean = share * silent + (1 - share) * answered
        assert mean <= min(joint, share * check + (1 - share) * both) * (1 + 1e-6)
    assert joint_charges(setup, order, expected_silence=0.0)[0].values[0] == joint


def test_costs_by_outcome_are_released_and_priced_as_one_item():
    votes = Votes.from_counts([[18, 2, 0], [7, 7, 6]] * 30, n_teachers=20)
    for share in (None, 0.0, 0.7):
        mechanism = ConfidentGNMax(4.0, 14.0, 3.0, expected_silence=share)
        release = mechanism.release(votes, noise.seeded(3))
        item = mechanism.item(Unit(), n_teachers=20, n_classes=3)
        n = int(release.answered.sum())
        assert 0 < n < 60
        paid = (60 - n) * item.price(0) + n * item.price(1)
        assert (release.cost.worst.values == paid.values).all()
        assert (release.labels == ConfidentGNMax(4.0, 14.0, 3.0).release(votes, noise.seeded(3)).labels).all()
        one_price = has_one_price(mechanism, Unit(), n_teachers=20, n_classes=3)
        assert one_price == (share == 0)
    # Without the numbers, for heavier ballots and for several at once, check and answer add up as they did.
    apart = mechanism.check_price(Unit()) + mechanism.answer_price(Unit())
    assert (mechanism.price(Unit()).values == apart.values).all()
    for unit in (Unit.of_weight(3), Unit.of_ballots(2)):
        apart = mechanism.check_price(unit) + mechanism.answer_price(unit)
        assert (mechanism.price(unit, n_teachers=20, n_classes=3).values == apart.values).all()


def test_events_say_nothing_of_what_was_left_out():
    event = describe(ConfidentGNMax(4.0, 14.0, 3.0), noise.seeded(3))
    assert event["parameters"] == {"sigma": 4.0, "threshold": 14.0, "sigma_threshold": 3.0}
    assert (
        describe(ConfidentGNMax(4.0, 14.0, 3.0, 0.25), noise.seeded(3))["parameters"]["expected_silence"]
        == 0.25
    )
    assert (
        repr(ConfidentGNMax(4.0, 14.0, 3.0))
        == "ConfidentGNMax(sigma=4.0, threshold=14.0, sigma_threshold=3.0)"
    )
    with pytest.raises(ValueError, match=r"expected_silence in \[0, 1\]"):
        ConfidentGNMax(4.0, 14.0, 3.0, 1.5)


def test_queries_of_a_few_teachers_more_than_said_cannot_be_priced_jointly():
    # Votes that weigh more than the teachers are many: check and answer add up.
    votes = Votes.from_ballots([[0], [0], [1]], n_classes=2).weighted([1, 1, 3])
    release = ConfidentGNMax(4.0, 2.0, 3.0).release(votes.replaced(unit=Unit()), noise.seeded(3))
    plain = ConfidentGNMax(4.0, 2.0, 3.0).item(Unit())
    assert (release.cost.worst.values == plain.curves[int(release.answered[0])].values).all()
