"""ARFF files with many labels, dense and sparse, on files written here."""

import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.data import read_mulan
from tellers.data.annotations import read_arff

HEAD = "% a comment\n@RELATION tiny\n@attribute x numeric\n@attribute 'top \\'speed' REAL\n"
LABELS = "@attribute sad {0,1}\n@attribute 'Stellar\\'s Jay' { 0, 1 }\n"
XML = """<?xml version="1.0"?>
<labels xmlns="http://example.org/l"><label name="Stellar's Jay"/><label name="sad"/></labels>"""


def files(tmp_path, data, *, head=HEAD + LABELS, xml=XML, packed=False):
    arff = tmp_path / ("tiny.arff.xz" if packed else "tiny.arff")
    text = f"{head}@data\n{data}".encode()
    arff.write_bytes(lzma.compress(text) if packed else text)
    (tmp_path / "tiny.xml").write_text(xml)
    return arff, tmp_path / "tiny.xml"


@pytest.mark.parametrize("packed", [False, True])
def test_dense_and_sparse_rows_say_the_same(tmp_path, packed):
    data = read_mulan(
        *files(tmp_path, "0.5, -2,1,0\n\n% between\n{0 0.5,1 -2,2 1}\n{}\n{3 1}\n", packed=packed)
    )
    assert data.label_names == ("Stellar's Jay", "sad")  # the order of the XML
    assert data.feature_names == ("x", "top 'speed")
    assert data.X.tolist() == [[0.5, -2.0], [0.5, -2.0], [0.0, 0.0], [0.0, 0.0]]
    assert data.Y.tolist() == [[0, 1], [0, 1], [0, 0], [1, 0]]
    assert data.notes == ()


def test_nominal_columns_are_numbers_or_codes_and_the_first_is_left_out_of_sparse_rows(tmp_path):
    head = "@relation r\n@attribute ward {B, 'A, 1'}\n@attribute place {10,2}\n@attribute sad {0,1}\n"
    xml = "<labels><label name='sad'/></labels>"
    data = read_mulan(*files(tmp_path, "'A, 1',2,1\n{0 B,1 2}\n{}\n{0 'A, 1', 1 10}\n", head=head, xml=xml))
    assert data.X.tolist() == [[1.0, 2.0], [0.0, 2.0], [0.0, 10.0], [1.0, 10.0]]
    assert "ward" in data.notes[0]
    assert "place" not in data.notes[0]


def test_nested_labels_of_a_hierarchy_are_labels(tmp_path):
    xml = "<labels><label name='sad'><label name=\"Stellar's Jay\"/></label></labels>"
    assert read_mulan(*files(tmp_path, "1,2,0,1\n", xml=xml)).label_names == ("sad", "Stellar's Jay")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 12))
def test_what_is_written_is_read_dense_or_sparse(tmp_path_factory, seed, n_columns, n_rows):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n_rows, n_columns)) * (rng.random((n_rows, n_columns)) < 0.5)
    head = "@relation r\n" + "".join(f"@attribute x{j} numeric\n" for j in range(n_columns)) + "@data\n"
    path = tmp_path_factory.mktemp("arff") / "a.arff"
    for style in ("dense", "sparse"):
        lines = [
            ",".join(map(repr, row))
            if style == "dense"
            else "{" + ",".join(f"{j} {v!r}" for j, v in enumerate(row) if v) + "}"
            for row in table.tolist()
        ]
        path.write_text(head + "\n".join(lines))
        attributes, read = read_arff(path)
        assert [attribute.name for attribute in attributes] == [f"x{j}" for j in range(n_columns)]
        np.testing.assert_array_equal(read, table)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("1,2,0\n", r"tiny\.arff, line 8: expected 4 values, got 3"),
        ("1,2,0,1\n1,2,0,2\n", r"line 9: expected one of the declared values for .*Jay"),
        ("1,secret,0,1\n", r"line 8: expected a number for .*speed"),
        ("1,?,0,1\n", r"line 8.*missing value"),
        ("1,nan,0,1\n", r"line 8.*finite"),
        ("{0 1,9 1}\n", r"line 8.*0\.\.3"),
        ("{0 1,0 2}\n", r"line 8.*every column once"),
        ("{0 1\n", r"line 8.*brace"),
        ("{x 1}\n", r"line 8.*0\.\.3"),
        ("", "at least one row"),
        ("% nothing\n", "at least one row"),
        ("'a,2,0,1\n", r"line 8"),
    ],
)
def test_bad_rows_are_named_with_their_line_and_not_shown(tmp_path, data, said):
    with pytest.raises(ValueError, match=said) as caught:
        read_mulan(*files(tmp_path, data))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("@relation r\n@attribute x string\n", r"line 2.*type of 'x'"),
        ("@relation r\n@attribute\n", r"line 2.*@attribute name type"),
        ("@relation r\n@attribute x {}\n", r"line 2.*type of 'x'"),
        ("@relation r\nwhat is this\n", r"line 2: expected @attribute or @data"),
        ("@relation r\n@attribute x real\n@attribute x real\n", "'x' twice"),
        ("@relation r\n", "expected attributes"),
        ("@relation r\n@attribute sad {0,1}\n@attribute x real\n", "'Stellar's Jay'|Stellar"),
        (
            "@relation r\n@attribute x real\n@attribute sad {no,yes}\n@attribute 'Stellar\\'s Jay' {0,1}\n",
            "'sad'",
        ),
        ("@relation r\n" + LABELS, "no label"),
    ],
)
def test_bad_headers_are_explained(tmp_path, head, said):
    row = "0,no,0" if "{no,yes}" in head else ",".join("0" * head.count("@attribute"))
    with pytest.raises(ValueError, match=said):
        read_mulan(*files(tmp_path, row + "\n", head=head))


@pytest.mark.parametrize(
    ("xml", "said"),
    [
        ("<labels></labels>", "at least one"),
        ("<labels><label/></labels>", r"tiny\.xml, line 1.*name"),
        ("<labels><label name='sad'/><label name='sad'/></labels>", "twice"),
        ("<labels>", r"tiny\.xml, line 1.*well-formed"),
    ],
)
def test_bad_lists_of_labels_are_explained(tmp_path, xml, said):
    with pytest.raises(ValueError, match=said):
        read_mulan(*files(tmp_path, "1,2,0,1\n", xml=xml))


def test_missing_and_damaged_files(tmp_path):
    arff, xml = files(tmp_path, "1,2,0,1\n", packed=True)
    with pytest.raises(ValueError, match="found none at"):
        read_mulan(tmp_path / "other.arff", xml)
    with pytest.raises(ValueError, match="found none at"):
        read_mulan(arff, tmp_path / "other.xml")
    arff.write_bytes(arff.read_bytes()[:-8])
    with pytest.raises(ValueError, match="damaged"):
        read_mulan(arff, xml)
