"""Private numbers reach text, bytes and arithmetic through `reveal()` alone."""

import copy
import dataclasses
import io
import json
import logging
import math
import pickle
import pprint

import numpy as np
import pytest

from tellers import Cost, GNMax, RdpCurve, Release, Sealed, Votes, exact_cost
from tellers.errors import SealedValue, TellersError

SECRET = 0.6712345
SHOWN = "6712345"


@pytest.fixture
def sealed():
    return Sealed(SECRET)


def test_reveal_is_the_way_in(sealed):
    assert sealed.reveal() == SECRET


@pytest.mark.parametrize(
    "use",
    [
        str,
        format,
        "{}".format,
        "{:.2f}".format,
        lambda s: f"{s}",
        lambda s: f"{s:>10}",
        lambda s: "%s" % s,  # noqa: UP031
        lambda s: "%.2f" % s,  # noqa: UP031
        lambda s: print(s, file=io.StringIO()),
        float,
        int,
        bool,
        complex,
        math.sqrt,
        range,
        lambda s: [1, 2][s],
        list,
        len,
        tuple,
        pickle.dumps,
        lambda s: pickle.dumps({"cost": [s]}, protocol=0),
        copy.copy,
        copy.deepcopy,
        lambda s: copy.deepcopy({"cost": [s]}),
        np.asarray,
        np.float64,
        lambda s: np.array([s, s]),
        lambda s: np.array([s], dtype=float),
        lambda s: np.full(3, s),
        lambda s: np.float64(1.0) + s,
        lambda s: np.exp(s),
        lambda s: s == SECRET,
        lambda s: s != SECRET,
        lambda s: s < 1,
        lambda s: s <= 1,
        lambda s: s > 1,
        lambda s: s >= 1,
        lambda s: np.float64(1) < s,
        lambda s: SECRET in [s],
        lambda s: sorted([s, s]),
        lambda s: max(s, s),
        lambda s: json.dumps({"epsilon": s}, default=str),
        lambda s: json.dumps({"epsilon": s}, default=float),
    ],
)
def test_every_use_by_accident_raises(sealed, use):
    with pytest.raises(SealedValue, match="cannot be published") as caught:
        use(sealed)
    assert SHOWN not in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [
        json.dumps,
        hash,
        round,
        abs,
        bytes,
        lambda s: s + 1,
        lambda s: 2 * s,
        lambda s: s**2,
        lambda s: -s,
        lambda s: sum([s]),
        lambda s: {s: 1},
        lambda s: "%d" % s,  # noqa: UP031
        lambda s: ",".join([s]),
        lambda s: s[0],
        lambda s: s(),
    ],
)
def test_what_it_never_could_do_raises_too(sealed, use):
    # SealedValue is a TypeError, so that code which expects Python's own refusal is served by both.
    with pytest.raises(TypeError) as caught:
        use(sealed)
    assert SHOWN not in str(caught.value)


@pytest.mark.parametrize(
    "show",
    [repr, "{!r}".format, lambda s: repr([s, {"a": s}]), pprint.pformat, lambda s: pprint.pformat([s] * 40)],
)
def test_repr_says_nothing_and_does_not_raise(sealed, show):
    # Debuggers and test runners call it on everything.
    assert "Sealed(<private>)" in show(sealed)
    assert SHOWN not in show(sealed)


def test_rich_shows_nothing(sealed):
    pretty = pytest.importorskip("rich.pretty")
    assert SHOWN not in pretty.pretty_repr({"epsilon": sealed})


def test_it_cannot_be_changed(sealed):
    with pytest.raises(AttributeError):
        sealed._value = 0.0
    with pytest.raises(AttributeError):
        sealed.other = 0.0


def test_logging_shows_nothing(sealed, capsys):
    stream = io.StringIO()
    logger = logging.getLogger("tellers.tests.sealed")
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        # The logging module catches what %s raises and prints the arguments by repr to stderr.
        logger.error("epsilon %s", sealed)
        logger.error("epsilon %r", sealed)
        logger.error("epsilon", extra={"epsilon": sealed})
    finally:
        logger.removeHandler(handler)
    captured = capsys.readouterr()
    assert SHOWN not in stream.getvalue() + captured.out + captured.err
    assert "epsilon Sealed(<private>)" in stream.getvalue()


def test_a_dataclass_that_holds_it_is_not_taken_apart(sealed):
    # asdict and astuple walk into every field that is a dataclass itself, and are the usual way to JSON.
    holder = Cost(worst=RdpCurve.zero([2.0]), tight=Sealed(SECRET))
    for take_apart in (dataclasses.asdict, dataclasses.astuple):
        try:
            shown = repr(take_apart(holder))
        except TypeError:
            continue
        assert SHOWN not in shown


def test_pydantic_does_not_serialise_it(sealed):
    pydantic = pytest.importorskip("pydantic")
    try:
        dumped = repr(pydantic.TypeAdapter(type(sealed)).dump_python(sealed))
    except Exception as refusal:  # any refusal will do, as long as it says nothing
        dumped = str(refusal)
    assert SHOWN not in dumped


def test_whatever_holds_it_is_sealed_with_it(sealed):
    release = Release(np.array([1]), Cost(RdpCurve.zero([2.0]), sealed))
    assert SHOWN not in repr(release)
    assert SHOWN not in repr(release.cost)
    for use in (pickle.dumps, copy.deepcopy):
        with pytest.raises(SealedValue):
            use(release)
    assert pickle.loads(pickle.dumps(release.cost.without_tight())).tight is None


def test_exact_costs_come_sealed():
    votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    cost = exact_cost(GNMax(sigma=40.0), votes)
    value = f"{cost.cost.reveal().values[5]:.6g}"
    assert value not in repr(cost)
    for part in (cost.cost, cost.forward, cost.reverse):
        assert isinstance(part, Sealed)
    with pytest.raises(SealedValue):
        pickle.dumps(cost)


def test_it_is_an_error_of_the_house():
    assert issubclass(SealedValue, TellersError)
    assert issubclass(SealedValue, TypeError)
