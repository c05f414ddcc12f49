"""Pascal VOC's layout, on files written here."""

import pytest

from tellers.data import read_voc
from tellers.data.annotations import VOC_CLASSES


def thing(name, difficult="0"):
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox/></object>"


def layout(folder, images, *, part="trainval", listing=None):
    for name in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for image, objects in images.items():
        (folder / "Annotations" / f"{image}.xml").write_text(f"<annotation>\n{''.join(objects)}</annotation>")
        (folder / "JPEGImages" / f"{image}.jpg").write_bytes(b"not decoded")
    lines = "\n".join(images) + "\n" if listing is None else listing
    (folder / "ImageSets" / "Main" / f"{part}.txt").write_text(lines)
    return folder


IMAGES = {
    "2007_000027": [thing("person"), thing("dog"), thing("dog")],
    "2007_000032": [thing("cat", "1"), thing("dog", "1"), thing("dog")],
    "2007_000033": [],
}


def yes(data, row):
    return {name for name, value in zip(data.label_names, data.Y[row], strict=True) if value == 1}


def test_objects_become_labels_in_the_order_of_the_list(tmp_path):
    data = read_voc(layout(tmp_path / "VOC2012", IMAGES))
    assert repr(data) == "MultilabelDataset('VOC2012/trainval', n_rows=3, n_labels=20, images)"
    assert data.label_names == VOC_CLASSES
    assert [yes(data, row) for row in range(3)] == [{"person", "dog"}, {"cat", "dog"}, set()]
    assert data.paths[1] == tmp_path / "VOC2012" / "JPEGImages" / "2007_000032.jpg"


@pytest.mark.parametrize(("policy", "cat"), [("ones", 1), ("zeros", 0), ("ignore", -1)])
def test_difficult_objects_are_settled_as_asked(tmp_path, policy, cat):
    data = read_voc(layout(tmp_path, IMAGES), difficult=policy)
    row = dict(zip(data.label_names, data.Y[1].tolist(), strict=True))
    assert row["cat"] == cat
    assert row["dog"] == 1  # another dog in the image is not difficult
    assert policy in data.notes[0]


def test_lists_of_one_class_and_classes_of_ones_own(tmp_path):
    folder = layout(tmp_path, {"a": [thing("lamp")], "b": []}, part="lamp_val", listing="a  1\nb -1\n\n")
    data = read_voc(folder, "lamp_val", classes=["lamp"])
    assert data.Y.tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("images", "listing", "said"),
    [
        ({"a": [thing("unicorn")]}, None, r"a\.xml, line 2.*'unicorn'.*classes="),
        ({"a": ["<object><bndbox/></object>"]}, None, r"a\.xml, line 2.*<name>"),
        ({"a": [thing("dog", "perhaps")]}, None, r"a\.xml, line 2.*<difficult>"),
        ({"a": ["<object>"]}, None, r"a\.xml, line 2.*well-formed"),
        ({"a": []}, "a\nb\n", r"annotation .*b\.xml"),
        ({"a": []}, "a\na\n", "one twice"),
        ({"a": []}, "\n", "at least one image"),
        ({"a": []}, "../../secret\n", r"trainval\.txt, line 1"),
        ({"a": []}, "a 1 2\n", r"trainval\.txt, line 1"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, images, listing, said):
    with pytest.raises(ValueError, match=said):
        read_voc(layout(tmp_path, images, listing=listing))


def test_missing_images_and_lists(tmp_path):
    folder = layout(tmp_path, IMAGES)
    with pytest.raises(ValueError, match=r"test\.txt, found none.*trainval"):
        read_voc(folder, "test")
    (folder / "JPEGImages" / "2007_000033.jpg").unlink()
    with pytest.raises(ValueError, match=r"row 2.*2007_000033\.jpg"):
        read_voc(folder)
    assert len(read_voc(folder, check_images=False)) == 3
    with pytest.raises(ValueError, match="difficult to be one of"):
        read_voc(folder, difficult="maybe")


def test_entities_that_unfold_are_refused(tmp_path):
    folder = layout(tmp_path, {"a": []})
    bomb = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;">]>\n<annotation>&y;</annotation>'
    (folder / "Annotations" / "a.xml").write_text(bomb)
    with pytest.raises(ValueError, match=r"a\.xml, line 1.*entities"):
        read_voc(folder)
