"""Options that do not go together."""

from dataclasses import replace
from typing import get_args

import pytest

from tellers import ConfidentGNMax, InteractiveGNMax, NoisyHistogram
from tellers.data import DATASETS
from tellers.data._records import NAMED
from tellers.errors import ConfigError
from tellers.mechanisms import LABEL_MECHANISMS, MECHANISMS
from tellers.runs import (
    DataConfig,
    MechanismConfig,
    QueriesConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    parse_config,
)

FILE = """
[data]
name = "files"
private = "a.csv"
public = "b.csv"
target = "y"
classes = ["no", "yes"]
"""
INTERACTIVE = """
[mechanism]
name = "interactive"
sigma = 8
threshold = 20
sigma_threshold = 15
student_confidence = 0.9
"""
WARM_UP = "\n[queries]\nwarm_up = 50\nwarm_up_threshold = 30\n"
HISTOGRAM = '\n[mechanism]\nname = "histogram"\nsigma = 8\n'
GNMAX = '\n[mechanism]\nname = "gnmax"\nsigma = 8\n'


def complaints(text):
    with pytest.raises(ConfigError) as refused:
        parse_config(text, source="x")
    lines = text.splitlines()
    found = []
    for problem in refused.value.problems:
        _, line, key, _ = problem.split(":", 3)
        found.append((key.strip(), lines[int(line) - 1]))
    return found


@pytest.mark.parametrize(
    "text",
    [
        FILE,
        FILE + "n_test = 30",
        FILE + 'test = "c.csv"',
        FILE.replace('public = "b.csv"', "n_public = 30"),
        FILE + 'person = "who"\n[partition]\nby = "person"\nbalance = "persons"',
        FILE + 'id = "visit"\nrows = 8000',
        FILE + 'site = "where"\n[partition]\nby = "site"\nn_teachers = 0\nsites = ["north", "south"]',
        FILE + 'options = {features = ["a"], categories = {ward = ["A", "B"]}}',
        INTERACTIVE + WARM_UP,
        INTERACTIVE + WARM_UP + 'order = "active"\nper_round = 20',
        HISTOGRAM,
        HISTOGRAM + '[student]\nkind = "distilled"\ntemperature = 2\nfloor = 10',
        '[queries]\norder = "active"',
        '[queries]\norder = "active"\nfirst = 20\nper_round = 5',
        '[budget]\nstop = "private"\nprivate_epsilon = 1',
        '[data]\nname = "mnist"\nn_test = 0\noptions = {verify = false}',
        '[data]\nname = "diabetes130"\n[partition]\nby = "person"',
        '[data]\nname = "synthetic"\noptions = {n_persons = 9}\n[partition]\nby = "person"',
        "[partition]\nstratified = true",
        '[mechanism]\nname = "lnmax"\ngamma = 0.05',
        '[mechanism]\nname = "confident"\nsigma = 8\nthreshold = 300\nsigma_threshold = 9',
    ],
)
def test_what_goes_together(text):
    parse_config(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The data.
        (FILE.replace('private = "a.csv"\n', ""), [("data.private", 'name = "files"')]),
        (FILE.replace('target = "y"', 'target = ""'), [("data.target", 'target = ""')]),
        (FILE.replace('["no", "yes"]', '["no"]'), [("data.classes", 'classes = ["no"]')]),
        (FILE.replace('public = "b.csv"\n', ""), [("data.public", 'name = "files"')]),
        (FILE + "n_public = 30", [("data.n_public", "n_public = 30")]),
        (FILE + 'test = "c.csv"\nn_test = 3', [("data.n_test", "n_test = 3")]),
        (FILE + "options = {n_rows = 3}", [("data.options.n_rows", "options = {n_rows = 3}")]),
        ('[data]\nprivate = "a.csv"', [("data.private", 'private = "a.csv"')]),
        ('[data]\nclasses = ["a", "b"]', [("data.classes", 'classes = ["a", "b"]')]),
        ("[data]\nn_public = 0", [("data.n_public", "n_public = 0")]),
        ("[data]\nn_test = 0", [("data.n_test", "n_test = 0")]),
        ('[data]\nname = "mnist"\nn_public = 0', [("data.n_public", "n_public = 0")]),
        (
            '[data]\nname = "mnist"\noptions = {part = "test"}',
            [("data.options.part", 'options = {part = "test"}')],
        ),
        # The partition.
        ("[partition]\nn_teachers = 0", [("partition.n_teachers", "n_teachers = 0")]),
        (
            FILE + 'site = "s"\n[partition]\nby = "site"\nsites = ["a", "b"]',
            [("partition.n_teachers", 'by = "site"')],
        ),
        (
            FILE + 'site = "s"\n[partition]\nby = "site"\nn_teachers = 0',
            [("partition.sites", 'by = "site"')],
        ),
        ('[partition]\nsites = ["a", "b"]', [("partition.sites", 'sites = ["a", "b"]')]),
        (FILE + 'person = "p"\nid = "v"', [("data.id", 'id = "v"')]),
        (FILE + 'id = "v"\n[partition]\nstratified = true', [("partition.stratified", "stratified = true")]),
        ('[partition]\nby = "person"', [("partition.by", 'by = "person"')]),
        (FILE + '[partition]\nby = "person"', [("partition.by", 'by = "person"')]),
        (
            '[data]\nname = "mnist"\n[partition]\nby = "site"\nn_teachers = 0\nsites = ["a", "b"]',
            [("partition.by", 'by = "site"')],
        ),
        ('[partition]\nbalance = "rows"', [("partition.balance", 'balance = "rows"')]),
        (
            FILE + 'person = "p"\n[partition]\nby = "person"\nstratified = true',
            [("partition.stratified", "stratified = true")],
        ),
        # The mechanism.
        ('[mechanism]\nname = "gnmax"', [("mechanism.sigma", 'name = "gnmax"')]),
        ("[mechanism]\nsigma = 8\nthreshold = 9", [("mechanism.sigma_threshold", "[mechanism]")]),
        (GNMAX + "gamma = 1", [("mechanism.gamma", "gamma = 1")]),
        (GNMAX.replace("8", "-8"), [("mechanism.sigma", "sigma = -8")]),
        (GNMAX.replace("8", '"8"'), [("mechanism.sigma", 'sigma = "8"')]),
        (
            "[mechanism]\nsigma = 8\nthreshold = 1e300\nsigma_threshold = 9",
            [("mechanism.threshold", "threshold = 1e300")],
        ),
        # The budget.
        ('[budget]\nstop = "private"', [("budget.private_epsilon", 'stop = "private"')]),
        ("[budget]\nprivate_epsilon = 2", [("budget.private_epsilon", "private_epsilon = 2")]),
        (
            '[budget]\nstop = "private"\nprivate_epsilon = 1\n[queries]\norder = "active"',
            [("budget.stop", 'stop = "private"')],
        ),
        (
            '[budget]\nstop = "private"\nprivate_epsilon = 1' + HISTOGRAM,
            [("budget.stop", 'stop = "private"')],
        ),
        # The queries.
        (
            WARM_UP,
            [("queries.warm_up", "warm_up = 50"), ("queries.warm_up_threshold", "warm_up_threshold = 30")],
        ),
        (
            INTERACTIVE,
            [
                ("queries.warm_up", 'name = "interactive"'),
                ("queries.warm_up_threshold", 'name = "interactive"'),
            ],
        ),
        (INTERACTIVE + WARM_UP + 'order = "active"\nfirst = 9', [("queries.first", "first = 9")]),
        ("[queries]\nfirst = 9", [("queries.first", "first = 9")]),
        ("[queries]\nper_round = 9", [("queries.per_round", "per_round = 9")]),
        # The student.
        ('[student]\nkind = "distilled"', [("student.kind", 'kind = "distilled"')]),
        ("[student]\ntemperature = 2", [("student.temperature", "temperature = 2")]),
        (HISTOGRAM + "[student]\nfloor = 2", [("student.floor", "floor = 2")]),
    ],
)
def test_what_does_not(text, expected):
    assert complaints(text) == expected


def test_a_wrong_option_is_told_once_and_not_by_what_depends_on_it():
    """With no valid name the parameters belong to nobody, and nothing is said of them."""
    assert complaints('[mechanism]\nname = "gmax"\ngamma = 3\n[student]\nkind = "distilled"') == [
        ("mechanism.name", 'name = "gmax"')
    ]


def test_the_mechanisms_are_those_that_are_named():
    assert isinstance(parse_config(HISTOGRAM).mechanism.build(), NoisyHistogram)
    run = parse_config(INTERACTIVE + WARM_UP)
    assert run.mechanism.build() == InteractiveGNMax(8.0, 20.0, 15.0, 0.9)
    assert run.warm_up() == ConfidentGNMax(8.0, 30.0, 15.0)
    assert run.mechanism.given == {
        "sigma": 8.0, "threshold": 20.0, "sigma_threshold": 15.0, "student_confidence": 0.9
    }  # fmt: skip
    assert parse_config(GNMAX).warm_up() is None


def test_every_data_set_and_every_mechanism_can_be_named():
    assert {name for name, one in NAMED.items() if not one.files} == {*DATASETS, "made_multilabel"}
    assert all(DataConfig(name=name).name == name for name in NAMED)
    assert {name for name, one in NAMED.items() if one.has_test_part} == {
        "adult", "fashion_mnist", "mnist", "svhn",
    }  # fmt: skip
    named = get_args(MechanismConfig.declared()["name"].annotation)
    assert set(named) == {*MECHANISMS, *LABEL_MECHANISMS, "histogram", "gaussian-sum"}


def test_settings_cannot_be_changed_and_do_not_follow_what_they_were_made_of():
    parameters = {"C": [1]}
    config = parse_config("")
    teachers = replace(config.teachers, parameters=parameters)
    parameters["C"].append(2)
    assert teachers.parameters == {"C": [1]}
    with pytest.raises(AttributeError):
        config.seed = 8


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"student": StudentConfig(kind="semi_supervised")},
            'student.model: .*got "logistic"',
        ),
        ({"student": StudentConfig(model="vat")}, 'student.kind: Expected "semi_supervised"'),
        ({"teachers": TeachersConfig(model="gan")}, "teachers.model: .*for students"),
        (
            {"student": StudentConfig(kind="semi_supervised", model="multilabel_mixmatch")},
            "another model for one class per row",
        ),
        (
            {
                "student": StudentConfig(kind="semi_supervised", model="vat"),
                "queries": QueriesConfig(order="active"),
            },
            'student.kind: .*order = "active"',
        ),
    ],
)
def test_semi_supervised_students_go_with_pools_alone(sections, words):
    with pytest.raises(ConfigError, match=words):
        RunConfig(**sections)


def test_students_of_unlabelled_rows_are_accepted():
    for model in ("gan", "mean_teacher", "mixmatch", "vat", "my.package:Student"):
        assert RunConfig(student=StudentConfig(kind="semi_supervised", model=model)).student.model == model
    assert RunConfig(student=StudentConfig(kind="self_taught", model="forest")).student.kind == "self_taught"
