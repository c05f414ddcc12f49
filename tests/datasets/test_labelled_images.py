"""CheXpert's layout and tables of one's own, on files written here."""

import gzip

import numpy as np
import pytest

from tellers.data import read_chexpert, read_image_table
from tellers.data.images import CHEXPERT_FINDINGS
from tellers.teachers import check_disjoint, partition

HEADER = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *CHEXPERT_FINDINGS]
ROWS = [
    (
        "CheXpert-v1.0/train/patient00001/study1/view1_frontal.jpg",
        "Frontal",
        {"Edema": "1.0", "Fracture": "-1.0"},
    ),
    ("CheXpert-v1.0/train/patient00002/study2/view1_frontal.jpg", "Frontal", {"No Finding": "0.0"}),
    ("CheXpert-v1.0/train/patient00002/study1/view2_lateral.jpg", "Lateral", {"Edema": "-1.0"}),
]


def line(path, view, findings):
    return ",".join(
        [path, "Female", "68", view, "AP", *(findings.get(name, "") for name in CHEXPERT_FINDINGS)]
    )


def layout(tmp_path, *, rows=ROWS, header=HEADER, name="CheXpert-v1.0", images=True):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    lines = [row if isinstance(row, str) else line(*row) for row in rows]
    (folder / "train.csv").write_text("\n".join([",".join(header), *lines]) + "\n")
    for row in rows if images else []:
        place = folder.joinpath(*row[0].split("/")[1:])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"not decoded")
    return folder


@pytest.mark.parametrize(("policy", "value"), [("zeros", 0), ("ones", 1), ("ignore", -1)])
def test_uncertain_findings_are_settled_as_asked_and_blank_ones_are_no(tmp_path, policy, value):
    data = read_chexpert(layout(tmp_path), uncertain=policy)
    assert repr(data) == "MultilabelDataset('chexpert/train', n_rows=3, n_labels=14, images, persons)"
    at = {name: j for j, name in enumerate(data.label_names)}
    assert data.Y[:, at["Edema"]].tolist() == [1, 0, value]
    assert data.Y[:, at["Fracture"]].tolist() == [value, 0, 0]
    assert data.Y[1].tolist() == [0] * 14
    assert policy in data.notes[0]


def test_blank_findings_may_be_ignored_instead(tmp_path):
    data = read_chexpert(layout(tmp_path), uncertain="ones", blank="ignore", findings=["No Finding", "Edema"])
    assert data.Y.tolist() == [[-1, 1], [0, -1], [-1, 1]]


def test_persons_are_patients_and_can_be_dealt_to_teachers(tmp_path):
    data = read_chexpert(layout(tmp_path), uncertain="zeros")
    assert data.persons.tolist() == ["patient00001", "patient00002", "patient00002"]
    dealt = partition(len(data), 2, seed=7, persons=data.persons)
    check_disjoint(dealt.parts, persons=data.persons)
    assert sum(len(part) for part in dealt.parts) == 3


@pytest.mark.parametrize("name", ["CheXpert-v1.0", "renamed"])
def test_paths_are_found_whatever_the_folder_is_called(tmp_path, name):
    data = read_chexpert(layout(tmp_path, name=name), uncertain="zeros")
    assert all(path.is_file() for path in data.paths)
    assert data.paths[0].parts[-4:] == ("train", "patient00001", "study1", "view1_frontal.jpg")


def test_views_and_packed_tables(tmp_path):
    folder = layout(tmp_path)
    assert len(read_chexpert(folder, uncertain="zeros", view="frontal")) == 2
    assert len(read_chexpert(folder, uncertain="zeros", view="lateral")) == 1
    table = folder / "train.csv"
    (folder / "valid.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    assert len(read_chexpert(folder, "valid", uncertain="zeros")) == 3


def test_a_policy_must_be_chosen(tmp_path):
    with pytest.raises(TypeError, match="uncertain"):
        read_chexpert(layout(tmp_path))
    with pytest.raises(ValueError, match="uncertain to be one of zeros, ones, ignore"):
        read_chexpert(tmp_path / "CheXpert-v1.0", uncertain="maybe")
    with pytest.raises(ValueError, match="view"):
        read_chexpert(tmp_path / "CheXpert-v1.0", uncertain="ones", view="top")


PATH = ROWS[0][0]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [(PATH, "Frontal", {"Edema": "2.0"})],
            r"train\.csv, line 2: expected 1, 0 or -1, or nothing in 'Edema'",
        ),
        ([ROWS[0], (PATH, "Frontal", {"Edema": "yes"})], r"line 3"),
        ([f"{PATH},Female"], r"train\.csv, line 2: expected 19 fields"),
        ([("train/x/view1.jpg", "Frontal", {})], r"line 2.*patient00001"),
        ([("/etc/patient1/a.jpg", "Frontal", {})], r"line 2.*inside the folder"),
        ([("../patient1/a.jpg", "Frontal", {})], r"line 2.*inside the folder"),
        ([("", "Frontal", {})], r"line 2.*inside the folder"),
        ([], "no row"),
        (['"unfinished'], r"train\.csv, line 2"),
    ],
)
def test_bad_rows_are_named_with_their_line_and_not_shown(tmp_path, rows, said):
    folder = layout(tmp_path, rows=rows, images=False)
    with pytest.raises(ValueError, match=said) as caught:
        read_chexpert(folder, uncertain="zeros", check_images=False)
    assert "Female" not in str(caught.value)


def test_missing_columns_images_and_tables(tmp_path):
    with pytest.raises(ValueError, match=r"one column 'Edema', got 0.*Sex"):
        read_chexpert(
            layout(tmp_path / "a", header=["E" if h == "Edema" else h for h in HEADER]), uncertain="zeros"
        )
    folder = layout(tmp_path / "b", images=False)
    with pytest.raises(ValueError, match=r"row 0.*patient00001.*check_images=False"):
        read_chexpert(folder, uncertain="zeros")
    assert len(read_chexpert(folder, uncertain="zeros", check_images=False)) == 3
    with pytest.raises(ValueError, match=r"valid\.csv.*found none"):
        read_chexpert(folder, "valid", uncertain="zeros")
    (folder / "train.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="UTF-8"):
        read_chexpert(folder, uncertain="zeros")


# A table of one's own -----------------------------------------------------------------------------------


def own(tmp_path, text="file,cat,who,dog\na.png,1,ann,0\nsub/b.png,-1,bo,1\n"):
    (tmp_path / "sub").mkdir(exist_ok=True)
    for name in ("a.png", "sub/b.png"):
        (tmp_path / name).write_bytes(b"not decoded")
    (tmp_path / "labels.csv").write_text(text)
    return {"folder": tmp_path, "table": tmp_path / "labels.csv", "image": "file", "labels": ["dog", "cat"]}


def test_a_folder_and_a_table(tmp_path):
    data = read_image_table(**own(tmp_path), person="who")
    assert data.label_names == ("dog", "cat")
    assert data.Y.tolist() == [[0, 1], [1, -1]]
    assert data.persons.tolist() == ["ann", "bo"]
    assert data.paths[1] == tmp_path / "sub" / "b.png"
    assert np.array_equal(read_image_table(**own(tmp_path), uncertain="ones").Y, [[0, 1], [1, 1]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("file,cat,who,dog\na.png,,ann,0\n", r"labels\.csv, line 2: expected 1, 0 or -1 in 'cat'"),
        ("file,cat,who,dog\na.png,1,,0\n", r"line 2.*'who'"),
        ("file,cat,who,dog,dog\na.png,1,x,0,0\n", "one column 'dog', got 2"),
        ("file,cat,who,dog\nmissing.png,1,x,0\n", r"row 0.*missing\.png"),
    ],
)
def test_bad_tables_of_ones_own(tmp_path, text, said):
    with pytest.raises(ValueError, match=said):
        read_image_table(**own(tmp_path, text), person="who")
