"""What settings can name to learn from, one record each: who reads it, and what a run of it begins with.

Settings and their rules, `tellers init` and the tables of a run ask these records. A function that reads rows
is named by its module here, and imported when it is needed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

Begun = dict[str, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class NamedData:
    """What settings can name; `load` reads rows with one class each, `load_labels` with many labels.

    `files` says what a file of one's own is, where rows come from such files. `set_aside` are the rows of the
    pool and of the test where nothing is said; 0 for the test is the rest of the test part that was published
    with it. `columns` are those that a file may be told of, and `has_persons` says that whose row each is
    needs no telling. `begun` are settings to begin with, by section and option.
    """

    load: str = ""
    load_labels: str = ""
    files: str = ""
    set_aside: tuple[int, int] = (0, 0)
    columns: tuple[str, ...] = ()
    has_persons: bool = False
    begun: Begun = field(default_factory=dict)

    def reader(self, *, labels: bool = False) -> Callable[..., Any]:
        """Return the function that reads it: with many labels or one class per row, as far as it can."""
        chosen = (labels and self.load_labels) or self.load or self.load_labels
        module, _, name = chosen.partition(":")
        found: Callable[..., Any] = getattr(import_module(f".{module}", __package__), name)
        return found

    def parameters(self, *, labels: bool = False) -> Mapping[str, Parameter]:
        """Return what that function takes."""
        return signature(self.reader(labels=labels)).parameters

    @property
    def has_test_part(self) -> bool:
        """Return whether a test part was published with it."""
        return "part" in self.parameters()


def _learners(model: str, **parameters: Any) -> Begun:
    """Return teachers and a student of one model."""
    said = {"model": model, "parameters": parameters}
    return {"teachers": said, "student": said}


# The setting of the 2018 paper for 250 teachers.
_PUBLISHED: Begun = {
    "partition": {"n_teachers": 250},
    "mechanism": {"name": "confident", "sigma": 40.0, "threshold": 200.0, "sigma_threshold": 150.0},
    "budget": {"epsilon": 2.0, "delta": 1e-5},
}
_IMAGES: Begun = {**_PUBLISHED, **_learners("cnn")}
_FORESTS: Begun = {**_PUBLISHED, **_learners("forest", n_estimators=100), "queries": {"n_queries": 500}}
_LABELLED_IMAGES: Begun = {
    "partition": {"n_teachers": 100, "by": "record"},
    "mechanism": {"name": "binary", "sigma": 20.0},
    "budget": {"delta": 1e-5},
    **_learners("cnn"),
}
_X_RAYS = "CheXpert-v1.0-small"
_VOC = "VOCdevkit/VOC2012/ImageSets/Main"
_SMALL = [32, 32]
_TAGGER = {"shape": [101, 64], "iterations": 60, "batch_size": 16, "learning_rate": 0.003}
_LISTENERS = _learners("tellers.runs.sound:AudioTagger", **_TAGGER)
# Rare labels get a word in: without weights, teachers of fifty rows answer no to all of them.
_BALANCED = _learners("logistic", class_weight="balanced")

FILES = "files"
NAMED: dict[str, NamedData] = {
    "adult": NamedData(
        load="uci:adult",
        set_aside=(5000, 0),
        begun={**_FORESTS, "partition": {"n_teachers": 250, "by": "record"}},
    ),
    "breast_cancer": NamedData(
        load="named:breast_cancer",
        set_aside=(150, 100),
        begun={
            "partition": {"n_teachers": 30},
            "teachers": {"model": "forest", "parameters": {"n_estimators": 20}},
            "mechanism": {"name": "confident", "sigma": 8.0, "threshold": 20.0, "sigma_threshold": 20.0},
            "student": {"model": "forest"},
        },
    ),
    "chexpert": NamedData(
        load_labels="_label_files:chexpert_table",
        files="a CSV",
        has_persons=True,
        begun={
            **_LABELLED_IMAGES,
            "data": {
                "private": f"{_X_RAYS}/train.csv",
                "public": f"{_X_RAYS}/valid.csv",
                "n_test": 1000,
                "options": {"uncertain": "zeros", "size": _SMALL},
            },
            "labels": {
                "names": ["Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion"],
            },
            "partition": {"n_teachers": 100, "by": "person"},
        },
    ),
    "clips": NamedData(
        load_labels="clips:clips_folder",
        files="a folder of `tellers audio prepare`",
        columns=("classes",),
        begun={
            "data": {"private": "city", "n_public": 120, "n_test": 100},
            "labels": {"names": ["bell", "engine", "siren", "voice"]},
            "partition": {"n_teachers": 20},
            "mechanism": {"name": "gnthreshold", "sigma": 5.0},
            "teachers": _LISTENERS["teachers"],
            "student": {**_LISTENERS["student"], "parameters": {**_TAGGER, "iterations": 200}},
        },
    ),
    "diabetes130": NamedData(
        load="uci:diabetes130",
        set_aside=(10_000, 10_000),
        has_persons=True,
        begun={
            **_FORESTS,
            "partition": {"n_teachers": 250, "by": "person"},
            "budget": {"epsilon": 2.0, "delta": 1e-6},
        },
    ),
    "digits": NamedData(
        load="named:digits",
        set_aside=(300, 297),
        begun={
            # Teachers have twenty rows each, and with little shrinkage they agree more.
            "teachers": {"model": "logistic", "parameters": {"C": 10.0}},
            # A tenth of the labels are wrong and half of the pool has none: what neighbours say helps.
            "student": {"kind": "self_taught", "model": "svm", "parameters": {"C": 3.0}},
        },
    ),
    "fashion_mnist": NamedData(load="images:fashion_mnist", set_aside=(9000, 0), begun=_IMAGES),
    "image_table": NamedData(
        load_labels="_label_files:image_table",
        files="a CSV",
        columns=("person",),
        begun={
            **_LABELLED_IMAGES,
            "data": {
                "private": "private.csv",
                "public": "public.csv",
                "n_test": 1000,
                "options": {"image": "file", "folder": "images", "size": _SMALL},
            },
            "labels": {"names": ["cat", "dog"]},
        },
    ),
    "made_multilabel": NamedData(
        load_labels="named:made_multilabel",
        set_aside=(400, 600),
        begun={
            "labels": {"names": ["sun", "rain", "wind", "fog", "snow"]},
            "partition": {"n_teachers": 100},
            "mechanism": {"name": "binary", "sigma": 20.0},
            **_BALANCED,
        },
    ),
    "mnist": NamedData(load="images:mnist", set_aside=(9000, 0), begun=_IMAGES),
    "mulan": NamedData(
        load_labels="_label_files:mulan_file",
        files="an ARFF file",
        begun={
            "data": {"private": "private.arff", "public": "public.arff", "test": "test.arff"},
            "labels": {"names": ["first", "second"]},
            "partition": {"n_teachers": 50},
            "mechanism": {"name": "binary", "sigma": 10.0},
            "budget": {"delta": 1e-5},
            **_BALANCED,
        },
    ),
    "svhn": NamedData(
        load="images:svhn",
        set_aside=(10_000, 0),
        begun={**_IMAGES, "budget": {"epsilon": 2.0, "delta": 1e-6}},
    ),
    "synthetic": NamedData(
        load="named:synthetic",
        set_aside=(500, 500),
        begun={"data": {"options": {"n_rows": 5000, "difficulty": 0.5}}},
    ),
    "voc": NamedData(
        load_labels="_label_files:voc_list",
        files="a list, VOC2012/ImageSets/Main/train.txt",
        begun={
            **_LABELLED_IMAGES,
            "data": {
                "private": f"{_VOC}/train.txt",
                "public": f"{_VOC}/val.txt",
                "n_test": 1000,
                "options": {"size": _SMALL},
            },
            "labels": {"names": ["person", "dog", "car"]},
        },
    ),
    FILES: NamedData(
        load="tables:read_table",
        load_labels="tables:read_label_table",
        files="CSV, Parquet or npz",
        columns=("target", "person", "id", "site", "classes"),
        begun={
            "data": {
                "private": "private.csv",
                "public": "public.csv",
                "test": "test.csv",
                "target": "label",
                "classes": ["no", "yes"],
            },
            "budget": {"delta": 1e-5},
        },
    ),
}
