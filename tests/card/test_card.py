"""The card says what is known, in words, and nothing that is not public."""

import copy
import json
import math
from pathlib import Path

import pytest

from tellers.runs import ModelCard, RunResult

RESULT = json.loads((Path(__file__).parents[1] / "report" / "digits" / "result.json").read_text())


def made(**changes):
    """Return the card of the fake run with some entries replaced, by dotted path."""
    result = copy.deepcopy(RESULT)
    for path, value in changes.items():
        table = result
        *way, last = path.split("__")
        for step in way:
            table = table[step]
        table[last] = value
    return ModelCard.from_result(result)


def test_the_card_holds_the_public_numbers_of_the_run():
    card = made()
    assert (card.n_teachers, card.n_queries, card.n_labels) == (60, 180, 138)
    assert card.unit == "one record"
    assert card.mechanism == "ConfidentGNMax"
    assert card.parameters == {"sigma": 9.0, "threshold": 38.0, "sigma_threshold": 13.0}
    assert card.is_guarantee
    assert card.created.startswith("2026-11-15")


def test_as_dict_is_plain_json_and_has_every_number():
    table = json.loads(json.dumps(made().as_dict(), allow_nan=False))
    assert table["mechanism"]["sigma"] == 9.0
    assert table["epsilon"] == RESULT["spent"]["epsilon"]
    assert table["classes"] == list("0123456789")
    assert table["versions"]["numpy"] == "1.26.4"


def test_markdown_rounds_epsilon_up():
    # 7.85715 as 7.85 would promise more than was paid for.
    assert "7.86 at delta = 0.0001" in made().markdown()
    assert "epsilon = 7.86" in made().markdown()
    # e^7.857150 = 2584.3...
    assert "at most 2,585 times as likely" in made().guarantee
    assert "at most 1.2 times" in made(spent__epsilon=0.1).guarantee
    assert "at most 10^22 times" in made(spent__epsilon=50.0).guarantee


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("one record", "A person in several rows is not covered"),
        ("one person", "under two names"),
        ("one site", "at several sites"),
        ("one clip", "only each clip by itself"),
        ("one source", "the clips of two sources"),
    ],
)
def test_each_unit_says_whom_it_does_not_cover(unit, words):
    card = made(partition__unit=unit)
    assert any(words in line for line in card.not_guaranteed)
    assert any(f"hangs on {unit} is protected" in line for line in card.not_guaranteed)


def test_notes_of_partition_and_data_are_not_guaranteed():
    card = made(
        partition__notes=["Stratified by label: ..."], data__notes=["Classes were read off the labels."]
    )
    assert {"Stratified by label: ...", "Classes were read off the labels."} <= set(card.not_guaranteed)


def test_a_private_stop_is_said():
    assert not any("private rule" in line for line in made().not_guaranteed)
    assert any("private rule" in line for line in made(settings__budget__stop="private").not_guaranteed)


def test_an_accuracy_that_was_not_measured_is_not_explained():
    card = made(student__accuracy=None)
    assert "not measured" in card.markdown()
    assert not any("accuracy" in line for line in card.not_guaranteed)


@pytest.mark.parametrize("spelt", [None, math.inf, "infinite", "inf"])
def test_infinite_epsilon_promises_nothing(spelt):
    card = made(spent__epsilon=spelt, spent__is_guarantee=True, spent__why="Classes were read off y.")
    assert not card.is_guarantee
    assert card.guarantee == "Nothing is guaranteed. Classes were read off y."
    assert card.as_dict()["epsilon"] is None
    assert "infinite at delta" in card.markdown()


def test_names_cannot_write_markup():
    nasty = ["<script>alert(1)</script>", "a|b", "[x](http://evil.example)", "`code`\n# heading"]
    page = made(data__class_names=nasty).markdown()
    assert "<script" not in page
    assert "\n# heading" not in page
    assert r"a\|b" in page
    assert r"\[x\](http" in page
    # The table keeps its two columns: one unescaped bar at each end and one between.
    rows = [line for line in page.splitlines() if line.startswith("| Classes")]
    assert len(rows) == 1
    assert rows[0].replace(r"\|", "").count("|") == 3


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("partition__n_teachers", "sixty", "a whole number from 0 at partition.n_teachers, got a str"),
        ("partition__n_teachers", True, "at partition.n_teachers, got a bool"),
        ("partition__n_teachers", -1, "at partition.n_teachers, got another number"),
        ("partition__n_teachers", 2.5, "at partition.n_teachers, got another number"),
        ("data__class_names", "0123456789", "a list at data.class_names, got a str"),
        ("spent__epsilon", -1, "at spent.epsilon"),
        ("spent__epsilon", math.nan, "at spent.epsilon"),
        ("spent__is_guarantee", 1, "true or false at spent.is_guarantee"),
        ("student__accuracy", 93.0, "a number from 0 to 1 at student.accuracy"),
        ("student", None, "a table at student, got null"),
        ("mechanism__sigma", "40", "a finite number at mechanism.sigma"),
        ("cost", [{"n_queries": 3}], "at cost.0.epsilon, got nothing"),
        ("format", 2, "format 1, got format 2"),
    ],
)
def test_a_wrong_entry_is_named(path, value, words):
    with pytest.raises(ValueError, match="Expected") as error:
        made(**{path: value})
    assert words in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"delta": 1.0},
        {"accuracy": 1.5},
        {"n_teachers": 0},
        {"classes": ("only one",)},
    ],
)
def test_a_card_of_nonsense_is_refused(change):
    fields = {name: getattr(made(), name) for name in ModelCard.__dataclass_fields__}
    with pytest.raises(ValueError, match="Expected"):
        ModelCard(**{**fields, **change})


def test_what_is_optional_may_be_missing():
    result = copy.deepcopy(RESULT)
    for key in ("seed", "versions", "started", "seconds", "settings", "warnings", "cost"):
        del result[key]
    del result["student"]["accuracy"], result["student"]["per_class"], result["spent"]["why"]
    run = RunResult.from_dict(result)
    assert run.cost == ()
    assert run.seed is None
    assert ModelCard.from_result(run).markdown()
