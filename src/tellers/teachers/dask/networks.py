"""Networks on a worker: a task trains its teachers together, with the engine that all workers use."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fallback import Rule
from ..training import random_states
from .places import keep
from .tasks import Job
from .working import Failed, Stopped, kept_or_refused, rows_of


def engine_for(job: Job, address: str, asked: Any) -> Any:
    """Return the engine for the networks of a job on this machine, measured with rows of one shard's shape.

    >>> from tellers.teachers.dask.shards import write_shard
    >>> from tellers.teachers.torch import TorchClassifier
    >>> import tempfile
    >>> model = TorchClassifier("mlp", epochs=1, device="cpu")
    >>> job = Job(model, n_outputs=2, many=False, seed=7, store="", n_teachers=2, versions={}, network=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_shard(f"{folder}/part.npz", np.eye(4), [0, 1, 0, 1])
    ...     engine_for(job, f"{folder}/part.npz", "batched").name
    'batched, chunk=..., precision=tf32, convolution=auto'
    """
    from ...devices import find_device
    from ..torch.choice import choose_engine
    from ..torch.classifier import check_network
    from ..torch.networks import build_network

    try:
        X, _ = rows_of(job, address)
    except Failed as error:
        raise ValueError(str(error)) from None
    shape = job.model.row_shape(X.shape)
    network = build_network(job.model.network, shape, n_classes=job.n_outputs, seed=0)
    check_network(network, shape, n_classes=job.n_outputs)
    return choose_engine(
        asked, network, shape=shape, recipe=job.model.recipe(), n_classes=job.n_outputs,
        device=find_device(job.model.device), n_teachers=job.n_teachers,
    ).engine  # fmt: skip


def train_networks(
    job: Job,
    numbers: Sequence[int],
    addresses: Sequence[str],
    queries: NDArray[Any] | None,
    *,
    given_up: Mapping[int, str],
) -> tuple[dict[int, NDArray[Any]], dict[int, str]]:
    """Find or train the networks of a task, as one unit; return their ballots, and who could not learn.

    >>> from tellers.teachers.dask.shards import write_shard
    >>> from tellers.teachers.torch import TorchClassifier
    >>> import tempfile
    >>> model = TorchClassifier("mlp", epochs=1, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = Job(
    ...         model, n_outputs=2, many=False, seed=7, store=folder, n_teachers=1, versions={}, network=True
    ...     )
    ...     write_shard(f"{folder}/part.npz", np.eye(4), [0, 1, 0, 1])
    ...     ballots, troubles = train_networks(job, [0], [f"{folder}/part.npz"], np.eye(4), given_up={})
    >>> ballots[0].shape, troubles
    ((4,), {})
    """
    from ...devices import find_device
    from ..torch.ensemble import TorchEnsemble
    from ..torch.label_ensemble import TorchLabelEnsemble
    from ..torch.networks import build_network
    from ..torch.units import (
        SEEN,
        Unit,
        describe_unit,
        give_up_unit,
        load_states,
        pack_states,
        read_troubles,
        train_unit,
    )
    from ..torch.voting import NO_ANSWER

    tables = [rows_of(job, address) for address in addresses]
    targets = np.concatenate([y for _, y in tables])
    shape = job.model.row_shape(tables[0][0].shape)
    unit = Unit(
        range(numbers[0], numbers[-1] + 1), job.model, np.concatenate([X for X, _ in tables]),
        targets.astype(np.float32) if job.many else targets, sizes=[len(y) for _, y in tables],
        seeds=[random_states(job.seed, number, 1)[0] for number in numbers], shape=shape,
        n_classes=job.n_outputs, engine=job.engine, n_teachers=job.n_teachers,
    )  # fmt: skip
    network = build_network(job.model.network, shape, n_classes=job.n_outputs, seed=0)
    device = find_device(job.model.device)
    wanted = describe_unit(unit, network, device=device.type, seed=job.seed)
    content = kept_or_refused(job, unit.file, wanted)
    if content is None:
        hopeless = given_up.get(numbers[0])
        outcome = train_unit(unit) if hopeless is None else give_up_unit(unit, hopeless)
        if outcome.stop is not None:
            raise Stopped("value", str(outcome.stop))
        assert outcome.states is not None  # without a folder they are handed on
        content = pack_states(unit, outcome.states, outcome.troubles)
        keep(job.store, unit.file, content=content, made_of=wanted)
    troubles = read_troubles(content)
    if queries is None:
        return {}, troubles
    import torch

    like = {**network.state_dict(), SEEN: torch.zeros(job.n_outputs)}
    states = {
        name: values.to(device)
        for name, values in load_states(content, like=like, n_teachers=len(numbers)).items()
    }
    engine = "loop" if job.engine is None else job.engine.name
    if job.many:
        ensemble: Any = TorchLabelEnsemble(
            job.model, states, shape, job.n_outputs, engine, job.thresholds, job.resolution
        )
        ballots: Any = ensemble.vote(queries).block().astype(np.min_scalar_type(job.resolution))
    else:
        ensemble = TorchEnsemble(job.model, states, shape, job.n_outputs, engine)
        ballots = np.array(ensemble.vote(queries).ballots, dtype=np.min_scalar_type(job.n_outputs - 1))
        rule = Rule(queries, job.n_outputs)
        for place in ensemble.troubles.reveal():
            ballots[place] = rule.ballot(numbers[place])  # by their numbers among all teachers
    for place in ensemble.troubles.reveal():
        troubles.setdefault(numbers[place], NO_ANSWER)
    return dict(zip(numbers, ballots)), troubles
