"""Settings to begin with, for each data set and for files of one's own."""

from typing import Any

from .schema import meant
from .sections import FILES, SET_ASIDE, RunConfig

Said = dict[str, dict[str, Any]]


def default_config(data: str = "digits") -> RunConfig:
    """Return settings to begin with for a named data set; for "files" names stand in for yours.

    >>> default_config().partition.n_teachers, default_config("mnist").teachers.model
    (60, 'cnn')
    >>> default_config("files").data.private
    'private.csv'
    """
    if data not in SET_ASIDE:
        raise ValueError(f"Expected one of {', '.join(SET_ASIDE)}, got {data!r}.{meant(data, SET_ASIDE)}")
    kinds, said = RunConfig.sections(), _SAID[data]
    said = {**said, "data": {"name": data, **said.get("data", {})}}
    return RunConfig(**{title: kinds[title](**values) for title, values in said.items()})


def _learners(model: str, **parameters: Any) -> Said:
    """Return teachers and a student of one model."""
    said = {"model": model, "parameters": parameters}
    return {"teachers": said, "student": said}


# The setting of the 2018 paper for 250 teachers.
_PUBLISHED: Said = {
    "partition": {"n_teachers": 250},
    "mechanism": {"name": "confident", "sigma": 40.0, "threshold": 200.0, "sigma_threshold": 150.0},
    "budget": {"epsilon": 2.0, "delta": 1e-5},
}
_IMAGES: Said = {**_PUBLISHED, **_learners("cnn")}
_FORESTS: Said = {**_PUBLISHED, **_learners("forest", n_estimators=100), "queries": {"n_queries": 500}}
_LABELLED_IMAGES: Said = {
    "partition": {"n_teachers": 100, "by": "record"},
    "mechanism": {"name": "binary", "sigma": 20.0},
    "budget": {"delta": 1e-5},
    **_learners("cnn"),
}
_X_RAYS = "CheXpert-v1.0-small"
_VOC = "VOCdevkit/VOC2012/ImageSets/Main"
_SMALL = [32, 32]
_CLIPS = _learners(
    "tellers.runs.sound:AudioTagger", shape=[101, 64], iterations=60, batch_size=16, learning_rate=0.003
)
_SAID: dict[str, Said] = {
    "adult": {**_FORESTS, "partition": {"n_teachers": 250, "by": "record"}},
    "breast_cancer": {
        "partition": {"n_teachers": 30},
        "teachers": {"model": "forest", "parameters": {"n_estimators": 20}},
        "mechanism": {"name": "confident", "sigma": 8.0, "threshold": 20.0, "sigma_threshold": 20.0},
        "student": {"model": "forest"},
    },
    "chexpert": {
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
    "clips": {
        "data": {"private": "city", "n_public": 120, "n_test": 100},
        "labels": {"names": ["bell", "engine", "siren", "voice"]},
        "partition": {"n_teachers": 20},
        "mechanism": {"name": "gnthreshold", "sigma": 5.0},
        "teachers": _CLIPS["teachers"],
        "student": {
            **_CLIPS["student"],
            "parameters": {**_CLIPS["student"]["parameters"], "iterations": 200},
        },
    },
    "diabetes130": {
        **_FORESTS,
        "partition": {"n_teachers": 250, "by": "person"},
        "budget": {"epsilon": 2.0, "delta": 1e-6},
    },
    "digits": {
        # Teachers have twenty rows each, and with little shrinkage they agree more.
        "teachers": {"model": "logistic", "parameters": {"C": 10.0}},
        # A tenth of the labels are wrong and half of the pool has none: what neighbours say helps.
        "student": {"kind": "self_taught", "model": "svm", "parameters": {"C": 3.0}},
    },
    "fashion_mnist": _IMAGES,
    "image_table": {
        **_LABELLED_IMAGES,
        "data": {
            "private": "private.csv",
            "public": "public.csv",
            "n_test": 1000,
            "options": {"image": "file", "folder": "images", "size": _SMALL},
        },
        "labels": {"names": ["cat", "dog"]},
    },
    "made_multilabel": {
        "labels": {"names": ["sun", "rain", "wind", "fog", "snow"]},
        "partition": {"n_teachers": 100},
        "mechanism": {"name": "binary", "sigma": 20.0},
        # Rare labels get a word in: without weights, teachers of fifty rows answer no to all of them.
        **_learners("logistic", class_weight="balanced"),
    },
    "mnist": _IMAGES,
    "mulan": {
        "data": {"private": "private.arff", "public": "public.arff", "test": "test.arff"},
        "labels": {"names": ["first", "second"]},
        "partition": {"n_teachers": 50},
        "mechanism": {"name": "binary", "sigma": 10.0},
        "budget": {"delta": 1e-5},
        **_learners("logistic", class_weight="balanced"),
    },
    "svhn": {**_IMAGES, "budget": {"epsilon": 2.0, "delta": 1e-6}},
    "synthetic": {"data": {"options": {"n_rows": 5000, "difficulty": 0.5}}},
    "voc": {
        **_LABELLED_IMAGES,
        "data": {
            "private": f"{_VOC}/train.txt",
            "public": f"{_VOC}/val.txt",
            "n_test": 1000,
            "options": {"size": _SMALL},
        },
        "labels": {"names": ["person", "dog", "car"]},
    },
    FILES: {
        "data": {
            "private": "private.csv",
            "public": "public.csv",
            "test": "test.csv",
            "target": "label",
            "classes": ["no", "yes"],
        },
        "budget": {"delta": 1e-5},
    },
}
