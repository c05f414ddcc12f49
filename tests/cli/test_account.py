"""`tellers account`, called in process: the numbers it prints, the words it refuses with."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from tellers import Accountant, Budget, ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Unit, Votes
from tellers.accounting import account
from tellers.cli import VERBS, build, main, options, show
from tellers.mechanisms.registry import parameters

N_TEACHERS, N_QUERIES, N_CLASSES = 50, 12, 4
GNMAX = ["--mechanism", "gnmax", "--sigma", "6"]
CONFIDENT = ["--mechanism", "confident", "--sigma", "6", "--threshold", "30", "--sigma-threshold", "12"]
INTERACTIVE = [
    *["--mechanism", "interactive", "--sigma", "6", "--threshold", "10", "--sigma-threshold", "12"],
    *["--student-confidence", "0.8"],
]
LNMAX = ["--mechanism", "lnmax", "--gamma", "0.1"]
DELTA = ["--delta", "1e-5"]


@pytest.fixture(scope="module")
def ballots():
    rng = np.random.default_rng(7)
    return rng.choice(N_CLASSES, size=(N_TEACHERS, N_QUERIES), p=[0.7, 0.15, 0.1, 0.05])


@pytest.fixture(scope="module")
def arrays(ballots):
    rng = np.random.default_rng(8)
    return {
        "ballots": ballots,
        "counts": np.stack([(ballots == k).sum(axis=0) for k in range(N_CLASSES)], axis=1),
        "student": rng.dirichlet(np.ones(N_CLASSES), size=N_QUERIES),
        "answered": rng.random(N_QUERIES) < 0.6,
    }


@pytest.fixture
def votes_file(tmp_path, arrays):
    def write(*names):
        path = tmp_path / "votes.npz"
        np.savez(path, **{name: arrays[name] for name in names})
        return str(path)

    return write


@pytest.fixture
def run(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


@pytest.fixture
def books(run):
    def call(*words):
        code, out, err = run("account", *words, *DELTA, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


# --- The numbers. ---


def test_public_numbers_only_unless_asked(votes_file, books, ballots):
    answer = books(votes_file("ballots"), *GNMAX, "--classes", 4)
    expected = account(GNMax(sigma=6.0), Votes.from_ballots(ballots, n_classes=4), delta=1e-5)
    assert answer == {
        "queries": N_QUERIES,
        "teachers": N_TEACHERS,
        "delta": 1e-5,
        "public": {
            "epsilon": expected.public.epsilon,
            "order": expected.public.order,
            "method": "argmax-rdp",
        },
        "budget_needed": expected.budget_needed,
        "compared": [asdict(cost) for cost in expected.compared],
        "notes": [],
    }
    assert answer["public"]["epsilon"] == (N_QUERIES * GNMax(sigma=6.0).price(Unit())).epsilon(1e-5)


@pytest.mark.parametrize(
    ("flags", "mechanism"),
    [
        (LNMAX, LNMax(gamma=0.1)),
        (GNMAX, GNMax(sigma=6.0)),
        (CONFIDENT, ConfidentGNMax(sigma=6.0, threshold=30.0, sigma_threshold=12.0)),
        (
            INTERACTIVE,
            InteractiveGNMax(sigma=6.0, threshold=10.0, sigma_threshold=12.0, student_confidence=0.8),
        ),
    ],
    ids=["lnmax", "gnmax", "confident", "interactive"],
)
@pytest.mark.parametrize("kind", ["ballots", "counts"])
def test_private_numbers_when_asked(votes_file, books, arrays, flags, mechanism, kind):
    answer = books(votes_file(kind, "student"), *flags, "--classes", 4, "--show-private")
    if kind == "ballots":
        votes = Votes.from_ballots(arrays["ballots"], n_classes=4)
    else:
        votes = Votes.from_counts(arrays["counts"], n_teachers=N_TEACHERS)
    expected = account(mechanism, votes, delta=1e-5, student=arrays["student"]).private.reveal()
    assert answer["private"] == {
        "exact": {
            "epsilon": expected.exact_epsilon,
            "order": expected.exact_order,
            "per": "teacher" if kind == "ballots" else "query",
            "kind": "exact" if kind == "ballots" else "upper bound",
        },
        "published": {
            "epsilon": expected.published_epsilon,
            "order": expected.published_order,
            "epsilon_classic": expected.published_classic,
            "kind": expected.kind,
        },
    }
    assert answer["private"]["exact"]["epsilon"] <= answer["public"]["epsilon"]


def test_an_npy_of_ballots(tmp_path, books, ballots, votes_file):
    np.save(tmp_path / "votes.npy", ballots.astype(np.int8))
    assert books(tmp_path / "votes.npy", *GNMAX) == books(votes_file("ballots"), *GNMAX)


def test_undeclared_classes_are_mentioned(votes_file, books, run):
    answer = books(votes_file("ballots"), *GNMAX)
    assert any("4 were taken" in note for note in answer["notes"])
    _, out, _ = run("account", votes_file("ballots"), *GNMAX, *DELTA)
    assert "4 were taken" in " ".join(out.split())


def test_a_run_that_was_made(votes_file, books):
    whole = books(votes_file("ballots"), *CONFIDENT, "--classes", 4, "--show-private")
    made = books(votes_file("ballots", "answered"), *CONFIDENT, "--classes", 4, "--show-private")
    # How many were answered is an outcome: what may be stated is the price of all; less was charged.
    assert made["public"] == whole["public"]
    assert made["charged"]["epsilon"] < whole["public"]["epsilon"]
    assert "charged" not in whole
    assert made["private"]["exact"] == whole["private"]["exact"]
    assert (made["private"]["published"]["kind"], whole["private"]["published"]["kind"]) == (
        "realised",
        "expected",
    )
    assert any("itself an outcome" in note for note in made["notes"])


def test_a_budget_is_stated_as_a_run_states_it(votes_file, books, run):
    """Every query costs the same: what was spent. Silence is cheaper: the budget, if less than the price."""
    plain = votes_file("ballots")
    paid = books(plain, *GNMAX, "--classes", 4, "--budget", 1.2)
    assert 0 < paid["queries_paid"] < N_QUERIES
    price = GNMax(sigma=6.0).price(Unit())
    assert paid["public"]["epsilon"] == (paid["queries_paid"] * price).epsilon(1e-5) < 1.2
    held = books(plain, *CONFIDENT, "--classes", 4, "--budget", 2.5)
    assert held["public"]["epsilon"] == 2.5
    assert held["budget"] == {"epsilon": 2.5, "held_at": Accountant(Budget(2.5, 1e-5)).held_at}
    enough = books(plain, *CONFIDENT, "--classes", 4, "--budget", 9)
    assert enough["public"] == books(plain, *CONFIDENT, "--classes", 4)["public"]
    _, out, _ = run("account", plain, *CONFIDENT, *DELTA, "--classes", 4, "--budget", 2.5)
    assert f"pays for at least {held['queries_paid']} of these 12 queries" in " ".join(out.split())
    code, _, err = run("account", plain, *CONFIDENT, *DELTA, "--classes", 4, "--budget", 0)
    assert code != 0
    assert "Expected" in err
    masked = votes_file("ballots", "answered")
    further = books(masked, *CONFIDENT, "--classes", 4, "--budget", 2.5)
    assert further["queries_paid"] > held["queries_paid"]
    assert further["charged"]["epsilon"] < further["public"]["epsilon"] == 2.5
    _, out, _ = run("account", masked, *CONFIDENT, *DELTA, "--classes", 4, "--budget", 2.5)
    assert f"pays for {further['queries_paid']} of these 12 queries" in " ".join(out.split())
    assert "charged for these answers" in out


def test_orders(votes_file, books):
    papers = books(votes_file("ballots"), *GNMAX, "--orders", "2:50", "--show-private")
    listed = books(
        votes_file("ballots"), *GNMAX, "--orders", ",".join(map(str, range(2, 51))), "--show-private"
    )
    assert papers == listed
    two = books(votes_file("ballots"), *GNMAX, "--orders", "1.5,2", "--show-private")
    assert two["private"]["exact"]["order"] in (1.5, 2.0)
    assert two["private"]["published"]["epsilon_classic"] > papers["private"]["published"]["epsilon_classic"]


@pytest.mark.parametrize(
    ("text", "orders"),
    [
        (None, None),
        ("2:4", [2.0, 3.0, 4.0]),
        ("8:8", [8.0]),
        ("8,1.5,2", [1.5, 2.0, 8.0]),
        ("3,3", [3.0]),
        ("7", [7.0]),
    ],
)
def test_orders_are_parsed(text, orders):
    assert options.parse_orders(text) == orders


@pytest.mark.parametrize(
    "text", ["", "x", "2:", "2:x", "9:2", "1:5", "0.5,2", "2,nan", "2,inf", "2:3:4", "2:90000"]
)
def test_bad_orders_are_refused(text):
    with pytest.raises(ValueError, match="Expected"):
        options.parse_orders(text)


# --- What people see. ---


def test_a_newcomer_can_read_it(votes_file, run):
    code, out, err = run("account", votes_file("ballots"), *CONFIDENT, *DELTA, "--classes", 4)
    words = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "12 queries by 50 teachers." in words
    assert "A ledger pays for all of them, whatever comes out, from a budget of" in words
    assert "Anyone may know: epsilon" in words
    assert "at delta 1e-05" in words
    assert "Whatever the votes" in words
    assert "argmax-rdp" in words
    assert "do not publish" not in words
    assert "--show-private" in words


def test_private_numbers_are_framed(votes_file, run):
    _, out, _ = run("account", votes_file("counts"), *CONFIDENT, *DELTA, "--show-private")
    public, _, private = out.partition("private: do not publish")
    assert "exact" not in public.replace("composed exactly", "").replace("composed\nexactly", "")
    assert "upper bound" in private
    assert "each query's worst ballot, summed" in private
    assert "in expectation" in private


def test_every_number_is_in_the_table(votes_file, run, books):
    _, out, _ = run("account", votes_file("ballots"), *CONFIDENT, *DELTA, "--classes", 4, "--show-private")
    answer = books(votes_file("ballots"), *CONFIDENT, "--classes", 4, "--show-private")
    for part in (answer["public"], answer["private"]["exact"], answer["private"]["published"]):
        assert show.figure(part["epsilon"]) in out
    for method in ("argmax-rdp", "histogram-rdp", "histogram-gdp"):
        assert method in out


def test_eighty_columns_are_enough(votes_file, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run("account", votes_file("ballots", "answered"), *CONFIDENT, *DELTA, "--show-private")
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "no claim" in out


def test_no_colours_and_no_progress_where_nobody_watches(votes_file, run):
    _, out, err = run("account", votes_file("ballots"), *GNMAX, *DELTA, "--show-private")
    assert "\x1b" not in out
    assert err == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.6913, "2.692"),
        (0.3, "0.300"),
        (19.0, "19.000"),
        (0.0002915, "0.000292"),
        (0.0, "0"),
        (float("inf"), "infinite"),
        (589.61, "589.610"),
    ],
)
def test_figures_are_rounded_up(value, text):
    assert show.figure(value) == text


def test_bars():
    assert show.bar(1.0, 1.0, width=4) == "████"
    assert show.bar(0.5, 1.0, width=4) == "██"
    assert show.bar(0.05, 1.0, width=4) == "▎"
    assert show.bar(0.0, 0.0) == ""


# --- What is refused, and how. ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mechanism", "gnmax", *DELTA], "--sigma for --mechanism gnmax"),
        (["--mechanism", "lnmax", *DELTA], "--gamma for --mechanism lnmax"),
        (["--mechanism", "confident", "--sigma", "6", *DELTA], "--threshold and --sigma-threshold"),
        ([*CONFIDENT[:1], "interactive", *CONFIDENT[2:], *DELTA], "--student-confidence"),
        ([*GNMAX, "--gamma", "0.1", *DELTA], "got --gamma too"),
        ([*LNMAX, "--sigma", "4", "--threshold", "3", *DELTA], "got --sigma and --threshold too"),
        ([*GNMAX, "--delta", "1.5"], "0 < delta < 1"),
        ([*GNMAX, "--delta", "nan"], "0 < delta < 1"),
        (["--mechanism", "gnmax", "--sigma", "-1", *DELTA], "sigma > 0"),
        (["--mechanism", "gnmax", "--sigma", "nan", *DELTA], "sigma > 0"),
        ([*GNMAX, "--classes", "2", *DELTA], "classes 0..1"),
        ([*GNMAX, "--classes", "1", *DELTA], "n_classes >= 2"),
        ([*GNMAX, "--orders", "a:b", *DELTA], "--orders a:b"),
        ([*GNMAX, "--orders", "1:4", *DELTA], "larger than 1"),
        ([*INTERACTIVE, *DELTA], "'student'"),
        (GNMAX, "--delta"),
        (["--sigma", "6", *DELTA], "--mechanism"),
        (["--mechanism", "borda", *DELTA], "borda"),
        ([*GNMAX, *DELTA, "--sgima", "3"], "--sgima"),
        (["--mechanism", "gnmax", "--sigma", "six", *DELTA], "--sigma"),
    ],
)
def test_bad_input_is_told_in_one_paragraph(votes_file, run, words, message):
    path = votes_file("ballots")
    code, out, err = run("account", path, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("tellers: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    code, out, err = run("account", path, *words, "--json")
    assert (code, out) == (2, "")
    assert message in json.loads(err)["error"]


def test_bad_files_are_bad_input(tmp_path, run):
    path = tmp_path / "votes.npz"
    code, _, err = run("account", path, *GNMAX, *DELTA)
    assert (code, "found nothing" in err) == (2, True)
    path.write_text("0,1,2\n")
    code, _, err = run("account", path, *GNMAX, *DELTA, "--json")
    assert (code, "Expected a NumPy file" in json.loads(err)["error"]) == (2, True)


def test_what_is_unexpected_is_told_without_its_details(votes_file, run, monkeypatch):
    """What went wrong inside may quote votes."""

    def break_down(*_args, **_kwargs):
        raise RuntimeError("the tally was 240 to 10")

    monkeypatch.setattr("tellers.accounting.costs.account", break_down)
    monkeypatch.delenv("TELLERS_DEBUG", raising=False)
    code, out, err = run("account", votes_file("ballots"), *GNMAX, *DELTA)
    assert (code, out) == (1, "")
    assert "RuntimeError" in err
    assert "240" not in err
    monkeypatch.setenv("TELLERS_DEBUG", "1")
    with pytest.raises(RuntimeError, match="tally"):
        main(["account", votes_file("ballots"), *GNMAX, *DELTA])


def test_stopping_it_is_not_an_error_of_ours(votes_file, run, monkeypatch):
    def stop(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("tellers.accounting.costs.account", stop)
    code, _, err = run("account", votes_file("ballots"), *GNMAX, *DELTA)
    assert code == 130
    assert "Traceback" not in err


def test_an_unknown_verb(run):
    code, _, err = run("acount")
    assert code == 2
    assert "acount" in err


# --- Around it. ---


def test_help_shows_every_verb_and_an_example(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(verb in out for verb in VERBS)
    assert run()[1] == out
    code, out, _ = run("account", "--help")
    assert code == 0
    assert "mnist_votes.npz" in out


def test_help_names_every_flag(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = run("account", "--help")
    flags = [options.flag(name) for name in parameters()]
    for flag in [*flags, "--mechanism", "--classes", "--delta", "--orders", "--show-private", "--json"]:
        assert flag in out


def test_help_names_every_mechanism(run):
    from tellers.mechanisms import LABEL_MECHANISMS, MECHANISMS

    words = run("account", "--help")[1].split()
    assert {*MECHANISMS, *LABEL_MECHANISMS} <= {word.strip(".,") for word in words}


def test_build_gives_an_application():
    assert callable(build())


def test_a_folder_of_votes_in_parts_costs_what_its_tallies_cost(run, tmp_path, arrays, votes_file):
    from tellers.teachers import VoteWriter

    votes = Votes.from_ballots(arrays["ballots"], n_classes=N_CLASSES)
    with VoteWriter(tmp_path / "many") as writer:
        for start in (0, 5, 10):
            writer.append(votes[start : start + 5])
    words = [*GNMAX, *DELTA, "--show-private", "--json"]
    code, out, err = run("account", tmp_path / "many", *words)
    assert code == 0, err
    _, of_counts, _ = run("account", votes_file("counts"), *words)
    folder, counts = json.loads(out), json.loads(of_counts)
    assert folder["private"] == counts["private"]
    assert "tallies are read" in " ".join(folder["notes"])
