"""Where keys stand: on documents that try hard to mislead, and on documents made at random."""

import datetime
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers.runs.settings._document import key_lines, toml_key, toml_value

TRICKY = '''\
# seed = 1
seed = 7 # a = [
"a.b" = 1
c.'d e'."f" = 2

[data] # [no]
name = """
[partition]
n_teachers = 60
""" # x
path = 'C:\\\\[x]'
quotes = """ends in "quotes""\\""""
five = """"two inside, five at the end"""""
literal = \'\'\'
it's = 1\'\'\'
empty = ""
classes = [ # first
  "a", # "b",
  """c
d""",

  ["e", [
    'f']],
  {g = 1, h.i = [2,
     3]},
]
options = { deep = { deeper = [ { x = 1 }, { x = 2 } ] } }
after = 1979-05-27 07:32:00
time = 07:32:00
number = 1_000.5e-3
[[aot]]
x = 1
[aot.sub]
y = 1
[[aot.inner]]
[[aot]]
[[aot.inner]]
z = 1
[data.more]
k = inf
'''


def paths(value, path=()):
    """Return the path of every key and entry of a document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in pairs:
        yield (*path, name)
        yield from paths(entry, (*path, name))


def test_every_key_of_a_tricky_document_is_found_and_no_other():
    assert set(key_lines(TRICKY)) == set(paths(tomllib.loads(TRICKY)))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("key", "start"),
    [
        (("seed",), "seed = 7"),
        (("a.b",), '"a.b"'),
        (("c", "d e", "f"), "c.'d e'"),
        (("data",), "[data]"),
        (("data", "path"), "path ="),
        (("data", "quotes"), "quotes ="),
        (("data", "literal"), "literal ="),
        (("data", "empty"), "empty ="),
        (("data", "classes", 0), '  "a", # "b",'),
        (("data", "classes", 1), '  """c'),
        (("data", "classes", 2, 1, 0), "    'f']],"),
        (("data", "classes", 3, "h", "i", 1), "     3]},"),
        (("data", "options", "deep", "deeper", 1, "x"), "options ="),
        (("data", "after"), "after ="),
        (("data", "number"), "number ="),
        (("aot", 0, "sub", "y"), "y = 1"),
        (("aot", 1, "inner", 0, "z"), "z = 1"),
        (("data", "more", "k"), "k = inf"),
    ],
)
def test_lines_of_a_tricky_document(key, start, newline):
    lines = TRICKY.splitlines()
    expected = [number for number, line in enumerate(lines, start=1) if line.startswith(start)]
    assert len(expected) == 1
    assert key_lines(TRICKY.replace("\n", newline))[key] == expected[0]


words = st.text(st.sampled_from("ab_1. \"'#=[]{}\\\né"), max_size=6)
scalars = st.one_of(
    words,
    st.integers(-99, 99),
    st.floats(allow_nan=False),
    st.booleans(),
    st.dates(datetime.date(1900, 1, 1)).map(datetime.date.isoformat).map(lambda text: ("raw", text)),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


class Writer:
    """Writes a document key by key in the styles TOML allows, and notes the line each key is on."""

    def __init__(self, data):
        self.data, self.text, self.lines = data, "", {}

    @property
    def line(self):
        return self.text.count("\n") + 1

    def noise(self):
        self.text += self.data.draw(st.sampled_from(["", "", "\n", "# [x] = {\n", "  \n\n"]))

    def pair(self, path, value):
        self.lines[path] = self.line
        self.text += f"{toml_key(path[-1])} = "
        self.value(path, value)

    def value(self, path, value):
        if isinstance(value, list):
            self.text += "["
            for number, entry in enumerate(value):
                self.text += self.data.draw(st.sampled_from(["", " ", "\n", " # ]\n  "]))
                self.lines[(*path, number)] = self.line
                self.value((*path, number), entry)
                self.text += ","
            self.text += self.data.draw(st.sampled_from(["]", "\n]"]))
        elif isinstance(value, dict):
            self.text += "{"
            for number, (name, entry) in enumerate(value.items()):
                self.text += ", " if number else ""
                self.pair((*path, name), entry)
            self.text += "}"
        elif isinstance(value, tuple):
            self.text += value[1]
        elif isinstance(value, str) and self.data.draw(st.booleans()):
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            self.text += f'"""\n{escaped}"""'
        else:
            self.text += toml_value(value)


@given(st.data())
def test_lines_of_documents_made_at_random(data):
    writer = Writer(data)
    tables = data.draw(st.dictionaries(words, st.dictionaries(words, values, max_size=4), max_size=3))
    for name, table in tables.items():
        writer.noise()
        writer.lines[(name,)] = writer.line
        writer.text += f"[{toml_key(name)}]\n"
        for key, value in table.items():
            writer.noise()
            writer.pair((name, key), value)
            writer.text += data.draw(st.sampled_from(["\n", " # end = 1\n"]))
    document = tomllib.loads(writer.text)
    assert set(paths(document)) == set(writer.lines)
    assert key_lines(writer.text) == writer.lines


@given(st.text(st.sampled_from("ab=[]{},.\"'#\n\\"), max_size=40))
def test_no_text_breaks_it(text):
    """It may be shown anything, also what no parser accepts; it ends, without an error."""
    key_lines(text)
