"""Teachers on many machines: trained by Dask where their rows are, with ballots as all that comes back."""

from .._old_names import train_dask_label_ensemble as train_dask_label_ensemble
from .cluster import Cluster, Link, connect
from .dispatch import Patience
from .ensemble import DaskEnsemble, train_dask_ensemble
from .shards import Shard, write_queries, write_shard, write_shards

__all__ = [
    "Cluster",
    "DaskEnsemble",
    "Link",
    "Patience",
    "Shard",
    "connect",
    "train_dask_ensemble",
    "write_queries",
    "write_shard",
    "write_shards",
]
