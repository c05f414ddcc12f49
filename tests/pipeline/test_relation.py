"""Whom a run protects: decided by its settings, and said in the same words everywhere."""

import html
import json

import numpy as np
import pytest

from tellers import Relation
from tellers.cli import main
from tellers.service import ServedConfig, ServiceSettings
from tellers.service._teachers import open_served

SETTINGS = """
seed = 7
[data]
name = "files"
private = "visits.csv"
public = "pool.csv"
target = "back"
classes = ["no", "yes"]
{data}
[partition]
{partition}
[teachers]
model = "naive_bayes"
n_jobs = 1
[mechanism]
name = "gnmax"
sigma = 3.0
[budget]
epsilon = 50.0
delta = {delta}
[queries]
n_queries = 20
[student]
model = "naive_bayes"
"""


def write(folder, *, data="", partition="n_teachers = 10", n_rows=200, delta=1e-5):
    """Write visits of people, a pool and settings, and return the place of the settings."""
    rng = np.random.default_rng(7)
    back = rng.integers(2, size=n_rows)
    lines = ["age,who,visit,ward,back"]
    for row in range(n_rows):
        age = rng.normal(50 + 10 * back[row], 3)
        ward = ("north", "south", "west")[row % 3]
        lines.append(f"{age!r},p{row % 80},v{row},{ward},{'yes' if back[row] else 'no'}")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    pool = "\n".join(["age", *(repr(age) for age in rng.normal(55, 6, size=60).tolist())])
    (folder / "pool.csv").write_text(pool + "\n")
    place = folder / "run.toml"
    left_out = 'options = {features = ["age"]}'
    place.write_text(SETTINGS.format(data=f"{data}\n{left_out}", partition=partition, delta=delta))
    return place


def run(settings, *words):
    """Run settings into a folder beside them."""
    with pytest.raises(SystemExit) as ended:
        main(["run", str(settings), "--out", str(settings.parent / "out"), "--json", *words])
    return ended.value.code


def result_of(settings):
    """Return what a run says of itself."""
    return json.loads((settings.parent / "out" / "result.json").read_bytes())


@pytest.mark.parametrize(
    ("data", "partition", "unit", "change", "told"),
    [
        ("", "n_teachers = 10", "record", "replace", 200),
        ('person = "who"', "n_teachers = 10", "person", "add or remove", None),
        ('person = "who"\nrows = 300', "n_teachers = 10", "person", "add or remove", 300),
        ('person = "who"', 'n_teachers = 10\nby = "record"', "record", "replace", 200),
        ('id = "visit"', "n_teachers = 10", "record", "add or remove", None),
        (
            'site = "ward"', 'by = "site"\nn_teachers = 0\nsites = ["west", "east", "north", "south"]',
            "site", "replace", None,
        ),
    ],
)  # fmt: skip
def test_settings_decide_whom_a_run_protects_and_everything_says_the_same(
    tmp_path, capsys, data, partition, unit, change, told
):
    settings = write(tmp_path, data=data, partition=partition)
    assert run(settings) == 0, capsys.readouterr().err
    result = result_of(settings)
    relation = Relation.from_dict(result["partition"]["relation"])
    assert (relation.unit, relation.change, result["data"]["n_private"]) == (unit, change, told)
    assert result["partition"]["unit"] == f"one {unit}"
    # One sentence, on the terminal, in the result, on the card, in the report and by the service.
    assert json.loads(capsys.readouterr().out)["partition"]["relation"]["sentence"] == relation.sentence
    card = json.loads((tmp_path / "out" / "student" / "card.json").read_bytes())
    assert card["relation"] == relation.as_dict()
    assert relation.sentence in html.unescape((tmp_path / "out" / "report.html").read_text())
    served = open_served(ServiceSettings(data=ServedConfig(source="run", path="out"), folder=str(tmp_path)))
    assert served.relation == relation
    # Who has rows of their own behind several teachers is told so.
    alone = [note for note in result["partition"]["notes"] if "one record all the same" in note]
    assert bool(alone) == (partition.endswith('"record"'))


@pytest.mark.parametrize(("data", "warned"), [("", True), ('person = "who"', False), ("rows = 99", True)])
def test_the_warning_about_delta_looks_at_public_numbers_alone(tmp_path, data, warned):
    settings = write(tmp_path, data=data, delta=0.02)
    assert run(settings) == 0
    said = [words for words in result_of(settings)["warnings"] if "number of private records" in words]
    assert bool(said) == warned


@pytest.mark.parametrize(("data", "goes_on"), [("", True), ('person = "who"', False)])
def test_a_run_that_was_seated_in_the_old_way_goes_on_or_is_refused_in_words(tmp_path, capsys, data, goes_on):
    settings = write(tmp_path, data=data)
    assert run(settings) == 0
    made_of = tmp_path / "out" / "private" / "made_of.json"
    said = json.loads(made_of.read_bytes())
    assert said["assignment"]["rule"].startswith("keyed hash")
    assert len(bytes.fromhex(said["assignment"]["key"])) == 32
    del said["assignment"]  # as an older version wrote it
    made_of.write_text(json.dumps(said))
    capsys.readouterr()
    code = run(settings, "--resume")
    told = capsys.readouterr().err
    assert (code == 0) == goes_on
    assert goes_on or "seated by a keyed hash, got an older one" in told
    # What it left is still read.
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "out")])
    assert ended.value.code == 0


def test_a_result_of_an_older_version_has_no_relation_and_is_read(tmp_path):
    settings = write(tmp_path)
    assert run(settings) == 0
    place = tmp_path / "out" / "result.json"
    result = json.loads(place.read_bytes())
    del result["partition"]["relation"]
    place.write_text(json.dumps(result))
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "out")])
    assert ended.value.code == 0
    assert "What the guarantee compares" not in (tmp_path / "out" / "report.html").read_text()
