"""Data: tables, images and recordings as rows with targets, units and declared columns."""

from .. import _lazy

_HOME = {
    "Clips": ".clips",
    "DATASETS": ".named",
    "Dataset": ".dataset",
    "MultilabelDataset": ".dataset",
    "OneEach": ".label_models",
    "adult": ".uci",
    "breast_cancer": ".named",
    "diabetes130": ".uci",
    "digits": ".named",
    "fashion_mnist": ".images",
    "load": ".named",
    "measure": ".metrics",
    "mnist": ".images",
    "read_chexpert": ".images",
    "read_image_table": ".images",
    "read_mulan": ".annotations",
    "read_table": ".tables",
    "read_voc": ".annotations",
    "svhn": ".images",
    "synthetic": ".named",
    "tune_thresholds": ".metrics",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
