"""Data: tables, images and recordings as rows with targets, units and declared columns."""

from .. import _lazy

_HOME = {
    "annotations": "read_mulan read_voc",
    "clips": "Clips",
    "dataset": "Dataset MultilabelDataset",
    "images": "fashion_mnist mnist read_chexpert read_image_table svhn",
    "label_models": "OneEach",
    "metrics": "measure tune_thresholds",
    "named": "DATASETS breast_cancer digits load synthetic",
    "tables": "read_table",
    "uci": "adult diabetes130",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
