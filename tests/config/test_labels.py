"""Settings of runs with many labels per row: what goes together, what does not, and where that is said."""

import pytest

from tellers import Binary, ConfidentGNThreshold, GNThreshold, PartialPowerset, Tau
from tellers.errors import ConfigError
from tellers.mechanisms import ConfidentDependentBinary, DependentBinary
from tellers.runs import default_config, parse_config

MADE = '[data]\nname = "made_multilabel"\n'
FILES = '[data]\nname = "files"\nprivate = "a.csv"\npublic = "b.csv"\n'
VOC = '[data]\nname = "voc"\nprivate = "a/ImageSets/Main/train.txt"\nn_public = 9\n'
LABELS = '[labels]\nnames = ["rain", "wind", "snow"]\n'
BINARY = '[mechanism]\nname = "binary"\nsigma = 9\n'


def complaints(text: str) -> list[tuple[str, str]]:
    """Return key and line of everything that is wrong."""
    with pytest.raises(ConfigError) as caught:
        parse_config(text, source="run.toml")
    lines = text.splitlines()
    found = []
    for problem in caught.value.problems:
        _, line, key, _ = problem.split(":", 3)
        found.append((key.strip(), lines[int(line) - 1]))
    return found


@pytest.mark.parametrize(
    ("mechanism", "labels", "made"),
    [
        ('name = "binary"\nsigma = 9', "", Binary(9.0, 3)),
        ('name = "binary"\nsigma = 9', "resolution = 100\n", Binary(9.0, 3, resolution=100)),
        ('name = "tau"\nsigma = 9\nmax_norm = 1.5\nnorm = "l1"', "", Tau(9.0, 3, 1.5, "l1")),
        ('name = "gnthreshold"\nsigma = 9\nshare = 0.3', "", GNThreshold(9.0, 3, 0.3)),
        (
            'name = "gnthreshold"\nsigma = 9\nshare = [0.3, 0.4, 0.5]',
            "",
            GNThreshold(9.0, 3, (0.3, 0.4, 0.5)),
        ),
        (
            'name = "confident-gnthreshold"\nsigma = 9\nn_top = 2\nconfident_share = 0.7\nsigma_gate = 8',
            "",
            ConfidentGNThreshold(9.0, 3, 2, 0.7, 8.0),
        ),
        (
            'name = "partial-powerset"\nsigma = 9\ngroups = [["snow", "rain"]]',
            "",
            PartialPowerset(9.0, 3, ((2, 0),)),
        ),
        (
            'name = "binary"\nsigma = 9',
            'implies = {snow = ["wind"]}\nimplies_not = {rain = ["wind"]}\n',
            DependentBinary(9.0, 3, positive=((2, 1),), negative=((0, 1),)),
        ),
        (
            'name = "confident-binary"\nsigma = 9\nthreshold = 30\nsigma_threshold = 8',
            'implies_not = {rain = ["wind"]}\n',
            ConfidentDependentBinary(9.0, 3, 30.0, 8.0, negative=((0, 1),)),
        ),
    ],
)
def test_the_mechanism_is_the_one_that_is_named(mechanism, labels, made):
    assert parse_config(f"{MADE}{LABELS}{labels}[mechanism]\n{mechanism}\n").build_mechanism() == made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Labels without a mechanism for them, and the other way round.
        (MADE + LABELS, [("mechanism.name", 'names = ["rain", "wind", "snow"]')]),
        (BINARY, [("mechanism.name", 'name = "binary"')]),
        (MADE, [("data.name", 'name = "made_multilabel"')]),
        ("[labels]\nresolution = 10\n", [("labels.resolution", "resolution = 10")]),
        # Data in which rows have one class.
        ('[data]\nname = "digits"\n' + LABELS + BINARY, [("data.name", 'name = "digits"')]),
        (
            FILES + 'target = "y"\n' + LABELS + BINARY,
            [("data.target", 'target = "y"')],
        ),
        (
            FILES + 'person = "rain"\n' + LABELS + BINARY,
            [("labels.names", 'names = ["rain", "wind", "snow"]')],
        ),
        (
            FILES + 'options = {budget = "agreed"}\n' + LABELS + BINARY,
            [("data.options.budget", 'options = {budget = "agreed"}')],
        ),
        # Files in a layout: what it has and needs is its own.
        ('[data]\nname = "voc"\nn_public = 9\n' + LABELS + BINARY, [("data.private", 'name = "voc"')]),
        (VOC + 'person = "who"\n' + LABELS + BINARY, [("data.person", 'person = "who"')]),
        (VOC + 'target = "y"\n' + LABELS + BINARY, [("data.target", 'target = "y"')]),
        (VOC + "options = {blur = 1}\n" + LABELS + BINARY, [("data.options.blur", "options = {blur = 1}")]),
        (VOC + LABELS + BINARY + '[partition]\nby = "person"\n', [("partition.by", 'by = "person"')]),
        (VOC.replace("voc", "chexpert") + LABELS + BINARY, [("data.options", 'name = "chexpert"')]),
        (VOC.replace("voc", "image_table") + LABELS + BINARY, [("data.options", 'name = "image_table"')]),
        (VOC.replace("n_public = 9\n", "") + LABELS + BINARY, [("data.public", 'name = "voc"')]),
        (VOC, [("data.name", 'name = "voc"')]),
        # What only one class per row has.
        (
            MADE + LABELS + BINARY + "[partition]\nstratified = true\n",
            [("partition.stratified", "stratified = true")],
        ),
        (MADE + LABELS + BINARY + '[queries]\norder = "active"\n', [("queries.order", 'order = "active"')]),
        (
            MADE + LABELS + '[mechanism]\nname = "gnmax"\nsigma = 9\n',
            [("mechanism.name", 'name = "gnmax"')],
        ),
        # Numbers and names that do not fit the labels.
        (
            MADE + LABELS + "thresholds = [0.5, 0.4]\n" + BINARY,
            [("labels.thresholds", "thresholds = [0.5, 0.4]")],
        ),
        (
            MADE + LABELS + "thresholds = [0.5, 0]\n" + BINARY,
            [("labels.thresholds", "thresholds = [0.5, 0]")],
        ),
        (
            MADE + LABELS + 'implies = {hail = ["rain"]}\n' + BINARY,
            [("labels.implies", 'implies = {hail = ["rain"]}')],
        ),
        (
            MADE + LABELS + 'implies = {snow = "rain"}\n' + BINARY,
            [("labels.implies.snow", 'implies = {snow = "rain"}')],
        ),
        (
            MADE + LABELS + 'implies = {snow = ["rain"], rain = ["snow"]}\n' + BINARY,
            [("labels.implies", 'implies = {snow = ["rain"], rain = ["snow"]}')],
        ),
        (
            MADE + LABELS + 'implies = {snow = ["rain"]}\n[mechanism]\nname = "powerset"\nsigma = 9\n',
            [("labels.implies", 'implies = {snow = ["rain"]}')],
        ),
        (
            MADE + LABELS + 'resolution = 10\n[mechanism]\nname = "powerset"\nsigma = 9\n',
            [("labels.resolution", "resolution = 10")],
        ),
        (
            MADE + LABELS + '[mechanism]\nname = "partial-powerset"\nsigma = 9\ngroups = [["hail"]]\n',
            [("mechanism.groups", 'groups = [["hail"]]')],
        ),
        (
            MADE + LABELS + '[mechanism]\nname = "powerset"\nsigma = 9\nmax_labels = 4\n',
            [("mechanism.max_labels", "max_labels = 4")],
        ),
        (
            MADE + LABELS + '[mechanism]\nname = "tau"\nsigma = 9\n',
            [("mechanism.max_norm", 'name = "tau"')],
        ),
        (
            MADE + LABELS + '[mechanism]\nname = "tau"\nsigma = 9\nmax_norm = 0\n',
            [("mechanism.max_norm", "max_norm = 0")],
        ),
        (
            MADE + LABELS + '[mechanism]\nname = "binary"\nsigma = 9\nmax_norm = 2\n',
            [("mechanism.max_norm", "max_norm = 2")],
        ),
        (
            MADE + LABELS + '[mechanism]\nname = "gnthreshold"\nsigma = 9\nshare = [0.5, 0.5]\n',
            [("mechanism.share", "share = [0.5, 0.5]")],
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_at_its_line(text, expected):
    assert complaints(text) == expected


def test_budgets_per_group_are_refused():
    personal = (
        '[personal]\nvariant = "weighting"\nlevels = {low = 1.0, high = 2.0}\n'
        "shares = {low = 0.5, high = 0.5}\n"
    )
    assert ("personal.variant", 'variant = "weighting"') in complaints(MADE + LABELS + BINARY + personal)


def test_a_cycle_is_told_by_the_names_of_its_labels():
    with pytest.raises(ConfigError, match=r"rain -> snow -> rain|snow -> rain -> snow"):
        parse_config(MADE + LABELS + 'implies = {snow = ["rain"], rain = ["snow"]}\n' + BINARY)


def test_a_guess_at_what_was_meant():
    with pytest.raises(ConfigError, match="Did you mean snow"):
        parse_config(MADE + LABELS + 'implies = {snwo = ["rain"]}\n' + BINARY)


def test_settings_to_begin_with_are_of_many_labels():
    config = default_config("made_multilabel")
    assert config.build_mechanism().n_labels == len(config.labels.names) > 2
