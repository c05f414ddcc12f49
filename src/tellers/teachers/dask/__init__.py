"""Teachers on many machines: trained by Dask where their rows are, with ballots as all that comes back."""

from ... import _lazy

_HOME = {
    "cluster": "Cluster Link connect",
    "dispatch": "Patience",
    "ensemble": "DaskEnsemble train_dask_ensemble",
    "shards": "Shard write_queries write_shard write_shards",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME, old={"._old_names": "train_dask_label_ensemble"})
