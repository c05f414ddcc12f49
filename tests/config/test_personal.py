"""Budgets per group in a settings file: every mistake has its line, before anything is read or trained."""

import pytest

from tellers.errors import ConfigError
from tellers.runs import PersonalConfig, RunConfig, parse_config, with_absolute_paths, write_config

LEVELS = "levels = {low = 0.7, high = 1.4}\n"
SHARES = "shares = {low = 0.5, high = 0.5}\n"
WEIGHTING = '[personal]\nvariant = "weighting"\n' + LEVELS
PERSON = '[partition]\nby = "person"\n'
FILES = """
[data]
name = "files"
private = "a.csv"
public = "b.csv"
target = "y"
person = "who"
classes = ["no", "yes"]
"""


def complaint(text):
    with pytest.raises(ConfigError) as refused:
        parse_config(text, source="x")
    _, line, rest = refused.value.problems[0].split(":", 2)
    return text.splitlines()[int(line) - 1], rest.strip()


@pytest.mark.parametrize(
    "text",
    [
        WEIGHTING + SHARES,
        WEIGHTING + SHARES + "leave = true\nweights = 'price'\nprecision = 0.05\nmin_persons = 3",
        WEIGHTING.replace("weighting", "vanishing") + SHARES + "power = 4\nleave = true",
        WEIGHTING.replace("weighting", "upsampling") + SHARES + 'grow = "shares"\nmost = 5\nleave = true',
        FILES + WEIGHTING + 'column = "consent"',
        FILES + '[personal]\nvariant = "weighting"\ncolumn = "consent"\nmax_groups = 4',
        FILES + PERSON + WEIGHTING + 'file = "consent.csv"',
    ],
)
def test_what_goes_together_is_read_and_written(text):
    config = parse_config(text)
    assert parse_config(write_config(config)) == config


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[personal]\nleave = true", "leave = true", "only with a variant"),
        ('[personal]\nvariant = "louder"', 'variant = "louder"', 'Expected one of "", "weighting"'),
        (WEIGHTING, 'variant = "weighting"', "one of column, file or shares"),
        (FILES + PERSON + WEIGHTING + 'file = "c.csv"\n' + SHARES, SHARES.strip(), "got file and shares"),
        (WEIGHTING + 'column = "c"', 'column = "c"', 'only with name = "files"'),
        (FILES + WEIGHTING + 'column = "y"', 'column = "y"', "a column of its own"),
        (
            FILES + '[partition]\nby = "record"\n' + WEIGHTING + 'file = "c.csv"',
            'file = "c.csv"',
            'by = "person"',
        ),
        (WEIGHTING + "shares = {low = 0.5, much = 0.5}", "shares = {low = 0.5, much = 0.5}", "of the levels"),
        (WEIGHTING + "shares = {low = 0.5, high = 0.4}", "shares = {low = 0.5, high = 0.4}", "sum to 1"),
        (WEIGHTING + "shares = {low = -1, high = 2}", "shares = {low = -1, high = 2}", "a share above 0"),
        (
            (WEIGHTING + SHARES).replace("0.7", "0.0"),
            "levels = {low = 0.0, high = 1.4}",
            "a budget above 0 and finite, got 0.0",
        ),
        (
            (WEIGHTING + SHARES).replace("0.7", "inf"),
            "levels = {low = inf, high = 1.4}",
            "a budget above 0 and finite, got inf",
        ),
        (
            (WEIGHTING + SHARES).replace("0.7", '"much"'),
            'levels = {low = "much", high = 1.4}',
            'a budget above 0 and finite, got "much"',
        ),
        (WEIGHTING + SHARES + "power = 4", "power = 4", 'only with variant = "vanishing"'),
        (WEIGHTING + SHARES + 'grow = "shares"', 'grow = "shares"', 'only with variant = "upsampling"'),
        (
            WEIGHTING + SHARES + '[mechanism]\nname = "lnmax"\ngamma = 0.1',
            'name = "lnmax"',
            "with budgets per group",
        ),
        (
            WEIGHTING + SHARES + '[budget]\nstop = "private"\nprivate_epsilon = 2',
            'stop = "private"',
            "groups are held to public prices",
        ),
        (WEIGHTING + SHARES + "[partition]\nstratified = true", "stratified = true", "dealt by group"),
    ],
)
def test_what_does_not_go_together_is_refused_at_its_line(text, line, says):
    found, words = complaint(text)
    assert found == line
    assert says in words


def test_the_file_of_budgets_is_found_from_another_folder(tmp_path):
    text = FILES + PERSON + WEIGHTING + 'file = "consent.csv"'
    config = parse_config(text, folder=tmp_path)
    assert with_absolute_paths(config).personal.file == str(tmp_path / "consent.csv")


def test_a_run_without_groups_says_so():
    assert not RunConfig().personal.variant
    assert PersonalConfig(variant="weighting", column="c").source == "column"
