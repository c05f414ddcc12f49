"""Settings to begin with, for each data set and for files of one's own."""

from .labels import LabelsConfig
from .mechanism import MechanismConfig
from .schema import meant
from .sections import (
    FILES,
    SET_ASIDE,
    BudgetConfig,
    DataConfig,
    PartitionConfig,
    QueriesConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
)

# The setting of the 2018 paper for 250 teachers.
_PUBLISHED = MechanismConfig(name="confident", sigma=40.0, threshold=200.0, sigma_threshold=150.0)


def default_config(data: str = "digits") -> RunConfig:
    """Return settings to begin with for a named data set; for "files" names stand in for yours.

    >>> default_config().partition.n_teachers, default_config("mnist").teachers.model
    (60, 'cnn')
    >>> default_config("files").data.private
    'private.csv'
    """
    if data not in SET_ASIDE:
        raise ValueError(f"Expected one of {', '.join(SET_ASIDE)}, got {data!r}.{meant(data, SET_ASIDE)}")
    return _MADE.get(data, _images)(data)


def _images(name: str) -> RunConfig:
    return RunConfig(
        data=DataConfig(name=name),
        partition=PartitionConfig(n_teachers=250),
        teachers=TeachersConfig(model="cnn"),
        mechanism=_PUBLISHED,
        budget=BudgetConfig(epsilon=2.0, delta=1e-6 if name == "svhn" else 1e-5),
        student=StudentConfig(model="cnn"),
    )


def _forests(name: str) -> RunConfig:
    by_person = name == "diabetes130"
    return RunConfig(
        data=DataConfig(name=name),
        partition=PartitionConfig(n_teachers=250, by="person" if by_person else "record"),
        teachers=TeachersConfig(model="forest", parameters={"n_estimators": 100}),
        mechanism=_PUBLISHED,
        budget=BudgetConfig(epsilon=2.0, delta=1e-6 if by_person else 1e-5),
        queries=QueriesConfig(n_queries=500),
        student=StudentConfig(model="forest", parameters={"n_estimators": 100}),
    )


def _files(name: str) -> RunConfig:
    return RunConfig(
        data=DataConfig(
            name=name, private="private.csv", public="public.csv", test="test.csv",
            target="label", classes=("no", "yes"),
        ),
        budget=BudgetConfig(delta=1e-5),
    )  # fmt: skip


def _digits(name: str) -> RunConfig:
    # Teachers have twenty rows each, and with little shrinkage they agree more.
    return RunConfig(
        data=DataConfig(name=name),
        teachers=TeachersConfig(model="logistic", parameters={"C": 10.0}),
        # A tenth of the labels are wrong and half of the pool has none: what neighbours say helps.
        student=StudentConfig(kind="self_taught", model="svm", parameters={"C": 3.0}),
    )


def _breast_cancer(name: str) -> RunConfig:
    return RunConfig(
        data=DataConfig(name=name),
        partition=PartitionConfig(n_teachers=30),
        teachers=TeachersConfig(model="forest", parameters={"n_estimators": 20}),
        mechanism=MechanismConfig(name="confident", sigma=8.0, threshold=20.0, sigma_threshold=20.0),
        student=StudentConfig(model="forest"),
    )


def _synthetic(name: str) -> RunConfig:
    return RunConfig(data=DataConfig(name=name, options={"n_rows": 5000, "difficulty": 0.5}))


def _made_multilabel(name: str) -> RunConfig:
    balanced = {"class_weight": "balanced"}
    return RunConfig(
        data=DataConfig(name=name),
        labels=LabelsConfig(names=("sun", "rain", "wind", "fog", "snow")),
        partition=PartitionConfig(n_teachers=100),
        # Rare labels get a word in: without weights, teachers of fifty rows answer no to all of them.
        teachers=TeachersConfig(model="logistic", parameters=balanced),
        mechanism=MechanismConfig(name="binary", sigma=20.0),
        student=StudentConfig(model="logistic", parameters=balanced),
    )


def _labelled_images(name: str) -> RunConfig:
    x_rays = name == "chexpert"
    private, public, labels, options = _LAYOUTS[name]
    return RunConfig(
        data=DataConfig(name=name, private=private, public=public, n_test=1000, options=options),
        labels=LabelsConfig(names=labels),
        partition=PartitionConfig(n_teachers=100, by="person" if x_rays else "record"),
        teachers=TeachersConfig(model="cnn"),
        mechanism=MechanismConfig(name="binary", sigma=20.0),
        budget=BudgetConfig(delta=1e-5),
        student=StudentConfig(model="cnn"),
    )


_VOC = "VOCdevkit/VOC2012/ImageSets/Main"
_LAYOUTS: dict[str, tuple[str, str, tuple[str, ...], dict[str, object]]] = {
    "chexpert": (
        "CheXpert-v1.0-small/train.csv", "CheXpert-v1.0-small/valid.csv",
        ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion"),
        {"uncertain": "zeros", "size": [32, 32]},
    ),
    "image_table": (
        "private.csv", "public.csv", ("cat", "dog"), {"image": "file", "folder": "images", "size": [32, 32]},
    ),
    "voc": (f"{_VOC}/train.txt", f"{_VOC}/val.txt", ("person", "dog", "car"), {"size": [32, 32]}),
}  # fmt: skip


def _clips(name: str) -> RunConfig:
    tagger = {"shape": [101, 64], "iterations": 60, "batch_size": 16, "learning_rate": 0.003}
    return RunConfig(
        data=DataConfig(name=name, private="city", n_public=120, n_test=100),
        labels=LabelsConfig(names=("bell", "engine", "siren", "voice")),
        partition=PartitionConfig(n_teachers=20),
        teachers=TeachersConfig(model=_TAGGER, parameters=tagger),
        mechanism=MechanismConfig(name="gnthreshold", sigma=5.0),
        student=StudentConfig(model=_TAGGER, parameters={**tagger, "iterations": 200}),
    )


_TAGGER = "tellers.runs.sound:AudioTagger"


def _mulan(name: str) -> RunConfig:
    balanced = {"class_weight": "balanced"}
    return RunConfig(
        data=DataConfig(name=name, private="private.arff", public="public.arff", test="test.arff"),
        labels=LabelsConfig(names=("first", "second")),
        partition=PartitionConfig(n_teachers=50),
        teachers=TeachersConfig(model="logistic", parameters=balanced),
        mechanism=MechanismConfig(name="binary", sigma=10.0),
        budget=BudgetConfig(delta=1e-5),
        student=StudentConfig(model="logistic", parameters=balanced),
    )


_MADE = {
    "adult": _forests,
    "breast_cancer": _breast_cancer,
    "chexpert": _labelled_images,
    "clips": _clips,
    "diabetes130": _forests,
    "digits": _digits,
    "image_table": _labelled_images,
    "made_multilabel": _made_multilabel,
    "mulan": _mulan,
    "synthetic": _synthetic,
    "voc": _labelled_images,
    FILES: _files,
}
