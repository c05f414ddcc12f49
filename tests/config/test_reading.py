"""Settings files: what is read, what is refused, and the line that is named."""

import os
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.errors import ConfigError, TellersError
from tellers.runs import BudgetConfig, RunConfig, default_config, parse_config, read_config, write_config

SECTIONS = RunConfig.sections()


def problems(text):
    """Return the mistakes of a text as (line, key, words)."""
    with pytest.raises(ConfigError) as refused:
        parse_config(text, source="run.toml")
    found = []
    for problem in refused.value.problems:
        file, line, rest = problem.split(":", 2)
        assert file == "run.toml"
        key, _, words = rest.strip().partition(": ")
        found.append((int(line), key, words))
    return found


@pytest.fixture
def write(tmp_path):
    def write(content, name="tellers.toml"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# --- What is read. ---


def test_an_empty_file_is_the_default(write):
    assert read_config(write("")) == RunConfig()


def test_what_is_left_out_has_its_default(write):
    config = read_config(write("seed = 3\n[budget]\nepsilon = 2\n"))
    assert config == RunConfig(seed=3, budget=BudgetConfig(epsilon=2.0))
    assert isinstance(config.budget.epsilon, float)


def test_a_named_data_set_sets_aside_what_suits_it(write):
    data = read_config(write('[data]\nname = "mnist"\n')).data
    assert (data.n_public, data.n_test) == (9000, 0)
    data = read_config(write('[data]\nname = "mnist"\nn_public = 100\n')).data
    assert (data.n_public, data.n_test) == (100, 0)


def test_numbers_of_classes_are_names(write):
    text = '[data]\nname = "files"\nprivate = "a.csv"\ntarget = "y"\nclasses = [0, 1]\nn_public = 5\n'
    assert read_config(write(text)).data.classes == ("0", "1")


def test_paths_start_at_the_folder_of_the_file(tmp_path, write, monkeypatch):
    text = """
[data]
name = "files"
private = "rows/a.csv"
public = "../b.csv"
test = "%s"
target = "y"
classes = ["no", "yes"]
"""
    absolute = tmp_path / "elsewhere" / "c.csv"
    path = write(text % absolute.as_posix())
    monkeypatch.chdir(tmp_path)
    for given_path in (path, path.name):
        data = read_config(given_path).data
        assert data.private == "rows/a.csv"
        assert data.private_path == tmp_path / "rows" / "a.csv"
        assert data.public_path.resolve() == (tmp_path / ".." / "b.csv").resolve()
        assert data.test_path == absolute
        assert data.directory_path is None


def test_where_an_option_stands(write):
    path = write("seed = 3\n\n[budget]\nepsilon = 2\n")
    config = read_config(path)
    assert config.where("budget", "epsilon") == f"{path}:4"
    assert config.where("budget", "delta") == f"{path}:3"
    assert config.where("queries", "order") == "queries.order"


def test_a_mark_of_byte_order_and_windows_lines_are_fine(write):
    config = read_config(write(b"\xef\xbb\xbf" + b"seed = 3\r\n[budget]\r\nepsilon = 2\r\n"))
    assert (config.seed, config.budget.epsilon, config.lines[("budget", "epsilon")]) == (3, 2.0, 3)


def test_changes_take_the_place_of_what_a_file_says():
    text = "seed = 3\n[budget]\nepsilon = 2\n"
    changes = ["budget.epsilon=4", "data.name=mnist", "teachers.parameters={C = 3}", "seed=5"]
    config = parse_config(text, changes=changes)
    assert (config.seed, config.budget.epsilon, config.data.n_public) == (5, 4.0, 9000)
    assert config.teachers.parameters == {"C": 3}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("budget.epsilon=0", r"^run\.toml:2: budget\.epsilon: Expected a number above 0, got 0\.$"),
        ("budget.epsilom=1", "Did you mean epsilon"),
        ("queries.first=3", "only with order"),
        ("budget.epsilon", "Expected SECTION.OPTION=VALUE, got budget.epsilon"),
        ("=3", "Expected SECTION"),
        ("seed.x=3", "Expected an option of a section"),
    ],
)
def test_changes_are_checked_like_the_file(change, words):
    with pytest.raises(ConfigError, match=words):
        parse_config("seed = 3\n[budget]\nepsilon = 2\n", source="run.toml", changes=[change])


# --- What is refused. ---


def test_all_mistakes_come_at_once_in_the_order_of_the_file():
    text = """\
n_teachers = 3
[budget]
stop = "private"
delta = "small"
[mechanism]
name = "gnmax"
threshold = 3
[budgte]
[data]
name = "digit"
"""
    found = problems(text)
    assert [(line, key) for line, key, _ in found] == [
        (1, "n_teachers"),
        (3, "budget.private_epsilon"),
        (4, "budget.delta"),
        (6, "mechanism.sigma"),
        (7, "mechanism.threshold"),
        (8, "budgte"),
        (10, "data.name"),
    ]
    words = {key: words for _, key, words in found}
    assert "below [partition]" in words["n_teachers"]
    assert "without quotes" in words["budget.delta"]
    assert "For example: sigma = " in words["mechanism.sigma"]
    assert "Did you mean budget?" in words["budgte"]
    assert "Did you mean digits?" in words["data.name"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("seed = true", 1, "Expected a whole number, got true."),
        ("seed = -1", 1, "at least 0, got -1"),
        ("seed = 7.0", 1, "got 7.0. Write 7."),
        ("[seed]\n", 1, "Expected a whole number, got {}"),
        ("data = 3", 1, "Write [data] once"),
        ("[[data]]\nname = 'digits'", 1, "got several"),
        ("[budget]\nepsilon = true", 2, "Expected a number, got true."),
        ("[budget]\nepsilon = inf", 2, "Expected a number, got inf."),
        ("[budget]\nepsilon = nan", 2, "Expected a number, got nan."),
        ("[budget]\nepsilon = 0", 2, "above 0, got 0."),
        ("[budget]\ndelta = 1", 2, "below 1, got 1."),
        ("[budget]\nledger = ' '", 2, "Expected some text"),
        ("[data]\nname = 3", 2, 'Write "3".'),
        ("[data]\nclasses = 'a'", 2, "Expected a list of names"),
        ("[data]\nclasses = [true]", 2, "got true"),
        ("[data]\nclasses = ['a', 'a']", 2, 'got "a" twice'),
        ("[data]\noptions = 3", 2, "Expected a table"),
        ("[data]\noptions = {rows = 3}", 2, "Unknown option"),
        ("[data]\nname = 'synthetic'\n[data.options]\nn_row = 3", 4, "Did you mean n_rows?"),
        ("[teachers]\nparameters = {day = 1979-05-27}", 2, "got 1979-05-27"),
        ("[teachers]\nparameters = {a = nan}", 2, "got nan"),
        ("[teachers]\nmodel = 'logstic'", 2, "Did you mean logistic?"),
        ("[teachers]\nmodel = 'a b:C'", 2, "package.module:Name"),
        ("[teachers]\nmodel = 'scaled_cnn'", 2, 'got "scaled_cnn"'),
        ("[report]\nprivate = 'false'", 2, "without quotes"),
        ("[report]\nprivate = 0", 2, "true or false"),
    ],
)
def test_wrong_values(text, line, words):
    [(found, _, message)] = problems(text)
    assert found == line
    assert words in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = \n", 1),
        ("seed = 7\nseed = 8\n", 2),
        ("[budget]\n\n[data]\n[budget]\n", 4),
        ("[budget]\nepsilon = 2\nepsilon.x = 3\n", 3),
        ("[data]\noptions = {a = 1, a = 2}\n", 2),
        ("seed = 7\n[data\nname = 'digits'\n", 2),
        ("[data]\nname = 'digits\n", 2),
        ("[data]\n\nname = digits\n", 3),
        ("[report]\nprivate = True\n", 2),
        ('[data]\nname = """\nnever\nends\n', 4),
        ("[data]\nclasses = [\n'a',\n", 3),
    ],
)
def test_what_is_not_toml_is_told_with_its_line(text, line):
    with pytest.raises(ConfigError) as refused:
        parse_config(text, source="run.toml")
    [problem] = refused.value.problems
    assert problem.startswith(f"run.toml:{line}: Expected TOML, got: ")


def test_what_is_there_twice_is_called_so():
    with pytest.raises(ConfigError, match="second time"):
        parse_config("seed = 7\nseed = 8\n")


def test_brackets_without_end():
    with pytest.raises(ConfigError):
        parse_config("seed = " + "[" * 100_000)


def test_files_that_cannot_be_read(tmp_path, write):
    with pytest.raises(ConfigError, match=r"found nothing at .*tellers init"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="the folder"):
        read_config(tmp_path)
    path = write(b"seed = 7\n# caf\xe9\n")
    with pytest.raises(ConfigError, match=r"tellers\.toml:2: Expected text in UTF-8"):
        read_config(path)
    if getattr(os, "geteuid", lambda: 0)():  # the superuser reads everything
        path.chmod(0)
        with pytest.raises(ConfigError, match="Expected a readable file"):
            read_config(path)


def test_the_error_is_ours_and_a_bad_value_and_survives_a_process():
    error = ConfigError(["a: one", "b: two"])
    assert isinstance(error, TellersError)
    assert isinstance(error, ValueError)
    assert str(error) == "a: one\nb: two"
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


# --- The line is right wherever the mistake is. ---


@settings(max_examples=30)
@given(data=st.data())
def test_a_wrong_key_at_a_random_place_is_found_there(data, any_run):
    lines = write_config(data.draw(any_run)).splitlines()
    section = data.draw(st.sampled_from(sorted(title for title in SECTIONS if f"[{title}]" in lines)))
    header = lines.index(f"[{section}]")
    end = next((n for n in range(header + 1, len(lines)) if lines[n].startswith("[")), len(lines))
    place = data.draw(st.integers(header + 1, end))
    wrong = data.draw(
        st.sampled_from(["nosuch = 1", '"no such" = [\n  1,\n]', 'nosuch = """\n[x]\n"""', "nosuch.a = 1"])
    )
    text = "\n".join([*lines[:place], wrong, *lines[place:]])
    assert [(line, words[:15]) for line, _, words in problems(text)] == [(place + 1, "Unknown option.")]


@settings(max_examples=30)
@given(data=st.data())
def test_a_wrong_type_at_a_random_place_is_found_there(data, any_run):
    lines = write_config(data.draw(any_run)).splitlines()
    section = data.draw(st.sampled_from(sorted(title for title in SECTIONS if f"[{title}]" in lines)))
    header = lines.index(f"[{section}]")
    names = set(SECTIONS[section].declared())
    end = next((n for n in range(header + 1, len(lines)) if lines[n].startswith("[")), len(lines))
    places = [n for n in range(header, end) if lines[n].partition(" = ")[0] in names]
    place = data.draw(st.sampled_from(places))
    name = lines[place].partition(" = ")[0]
    # A date is of no option's type.
    lines[place] = f"{name} = 1979-05-27"
    found = problems("\n".join(lines))
    assert [(line, key) for line, key, _ in found] == [(place + 1, f"{section}.{name}")]
    assert "got 1979-05-27" in found[0][2]


def test_settings_made_in_python_name_the_option():
    with pytest.raises(ConfigError, match=r"^budget\.delta: Expected a number above 0 and below 1, got 3"):
        BudgetConfig(delta=3)
    with pytest.raises(ConfigError, match=r"^seed: "):
        RunConfig(seed=-1)
    with pytest.raises(ConfigError, match=r"^budget: Expected a BudgetConfig, got dict"):
        RunConfig(budget={"epsilon": 2.0})
    with pytest.raises(ConfigError, match=r"^partition\.n_teachers"):
        replace(default_config(), partition=replace(default_config().partition, n_teachers=0))


def test_an_option_above_the_sections_that_belongs_nowhere():
    [(line, key, words)] = problems("seed = 7\nzzz = 3\n")
    assert (line, key) == (2, "zzz")
    assert words.startswith("Expected a section (data, ")
