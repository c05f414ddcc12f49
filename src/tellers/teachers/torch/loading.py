"""Networks that were trained before, read from their folder without the rows they were trained on."""

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from ...devices import find_device
from ...errors import require_count
from ..models import find_model
from .classifier import TorchClassifier
from .ensemble import TorchEnsemble, Trained
from .networks import Factory, build_network
from .units import SEEN, load_states, read_about, read_troubles

PATTERN = "teachers-*.safetensors"


def load_torch_ensemble(
    folder: str | PathLike[str],
    *,
    n_classes: int,
    n_teachers: int | None = None,
    network: Factory | None = None,
    device: str = "auto",
) -> TorchEnsemble:
    """Return the networks that `train_torch_ensemble` kept in a folder.

    The files say which network they hold the weights of; one that was made by a function needs that function
    again, as `network`. Units of an earlier run with other settings may lie beside those of a finished one;
    two finished runs are refused, and so is one that lacks a teacher.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   the folder holds the teachers of one partition, all of them.
    Reference: Papernot et al. 2017, section 2.1.

    >>> import tempfile
    >>> from tellers.datasets import digits
    >>> from tellers.teachers.partition import partition
    >>> from tellers.teachers.torch import train_torch_ensemble
    >>> data, model = digits(), TorchClassifier("mlp", epochs=5, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trained = train_torch_ensemble(
    ...         model, data.X[:600], data.y[:600], partition(600, 3, seed=7), n_classes=10, seed=7,
    ...         engine="loop", folder=folder,
    ...     )
    ...     load_torch_ensemble(folder, n_classes=10, device="cpu")
    TorchEnsemble(n_teachers=3, n_classes=10, engine='loop')
    """
    require_count(2, n_classes=n_classes)
    made_for = {"n_classes": int(n_classes), "n_teachers": n_teachers}
    classifier, trained = load_networks(Path(folder), made_for, network=network, device=device)
    return TorchEnsemble(
        classifier, trained.states, trained.shape, int(n_classes), trained.engine, trained.troubles
    )


def load_networks(
    place: Path, made_for: Mapping[str, int | None], *, network: Factory | None, device: str
) -> tuple[TorchClassifier, Trained]:
    """Return the networks of a folder; `made_for` says how many classes, or labels, and teachers, if known.

    >>> load_networks(Path("nowhere"), {"n_classes": 2}, network=None, device="cpu")
    Traceback (most recent call last):
        ...
    ValueError: Expected the networks of one finished run (teachers-*.safetensors) in nowhere, got none ...
    """
    runs = {run: units for run, units in _runs(place).items() if _is_whole(json.loads(run), units)}
    if len(runs) != 1:
        found = "none that is" if not runs else f"those of {len(runs)} runs"
        raise ValueError(
            f"Expected the networks of one finished run ({PATTERN}) in {place}, got {found}. Let the run "
            "that trains them end first, in a folder of its own."
        )
    about = json.loads(next(iter(runs)))["about"]
    for name, wanted in made_for.items():
        if wanted not in (None, about.get(name)):
            there = ", ".join(
                f"{n}={about[n]}" for n in ("n_classes", "n_labels", "n_teachers") if n in about
            )
            got = about.get(name, there)
            raise ValueError(f"Expected networks with {name}={wanted} in {place}, got {got}.")
    n_outputs = int(about.get("n_classes", about.get("n_labels")))
    classifier = _classifier(about, network, device)
    shape = tuple(int(n) for n in about["shape"])
    like = build_network(classifier.network, shape, n_classes=n_outputs, seed=0).state_dict()
    files = sorted(next(iter(runs.values())).items(), key=lambda unit: unit[0].start)
    units = [
        load_states(content, like={**like, SEEN: torch.zeros(n_outputs)}, n_teachers=len(numbers))
        for numbers, content in files
    ]
    troubles = {number: why for _, content in files for number, why in read_troubles(content).items()}
    at = find_device(device)
    states = {name: torch.cat([unit[name].to(at) for unit in units]) for name in units[0]}
    return classifier, Trained(states, shape, about["engine"], troubles)


def _runs(place: Path) -> dict[str, dict[range, bytes]]:
    """Return the finished units of a folder by what is the same in all units of a run."""
    runs: dict[str, dict[range, bytes]] = {}
    for path in sorted(place.glob(PATTERN)):
        found = find_model(place, path.name)
        if found is None:  # never finished, or damaged: its run is not whole without it
            continue
        content, made_of = found
        about = read_about(content)
        first = about.pop("first")
        about.pop("troubles", None)
        same = {name: value for name, value in made_of.items() if name != "rows"}
        run = json.dumps({"about": about, "made_of": same}, sort_keys=True)
        size = _n_rows(content)
        runs.setdefault(run, {})[range(first, first + size)] = content
    return runs


def _n_rows(content: bytes) -> int:
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return int(header[SEEN]["shape"][0])


def _is_whole(run: Mapping[str, Any], units: Mapping[range, bytes]) -> bool:
    numbers = [number for unit in units for number in unit]
    return sorted(numbers) == list(range(run["about"]["n_teachers"]))


def _classifier(about: Mapping[str, Any], network: Factory | None, device: str) -> TorchClassifier:
    parameters = {**about["parameters"], "device": device}
    if parameters["network"] is None:
        if network is None:
            raise ValueError(
                "Expected a network by its name, got one that a function made: no file holds it. Load it "
                "with load_torch_ensemble(..., network=the function)."
            )
        parameters["network"] = network
    if parameters["image_shape"] is not None:
        parameters["image_shape"] = tuple(parameters["image_shape"])  # JSON has lists alone
    return TorchClassifier(**parameters)
