"""Teachers that were trained before, read from their folder without the rows they were trained on."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import require_count
from .ensemble import Ensemble
from .models import find_teacher, load_model

if TYPE_CHECKING:
    from .torch import TorchEnsemble

    AnyEnsemble: TypeAlias = Ensemble | TorchEnsemble


def load_ensemble(
    folder: str | PathLike[str], *, n_classes: int, n_teachers: int | None = None, trusted: Sequence[str] = ()
) -> "AnyEnsemble":
    """Return the teachers that `train_ensemble` or `train_torch_ensemble` kept in a folder.

    `trusted` names types beyond scikit-learn's that the models may be made of. All teachers of one partition
    belong in a vote: a gap in their numbers is refused, and so is another number than `n_teachers`. Torch is
    loaded where the folder holds networks.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   the folder holds the teachers of one partition, all of them.
    Reference: Papernot et al. 2017, section 2.1.

    >>> import tempfile
    >>> from tellers.teachers.models import ConstantTeacher, save_teacher
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         save_teacher(Path(folder), number, model=ConstantTeacher(number), made_of={"seed": 7})
    ...     load_ensemble(folder, n_classes=3)
    Ensemble(n_teachers=3, n_classes=3)
    """
    require_count(2, n_classes=n_classes)
    place = Path(folder)
    there = sorted(path.name for path in place.glob("teacher-*.skops"))
    if any(place.glob("teachers-*.safetensors")):
        if there:
            raise ValueError(
                f"Expected teachers of one kind in {place}, got networks (.safetensors) and others (.skops). "
                "Give each kind a folder of its own."
            )
        from .torch import load_torch_ensemble

        return load_torch_ensemble(place, n_classes=n_classes, n_teachers=n_teachers)
    teachers = load_teachers(place, {"n_classes": int(n_classes)}, n_teachers, trusted=trusted)
    return Ensemble(teachers, int(n_classes))


def load_teachers(
    place: Path, made_for: Mapping[str, int], n_teachers: int | None, *, trusted: Sequence[str] = ()
) -> tuple[Any, ...]:
    """Return all models of a folder; manifests that say they answer something else are refused.

    >>> import tempfile
    >>> from tellers.teachers.models import ConstantTeacher, save_teacher
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_teacher(Path(folder), 0, model=ConstantTeacher(1), made_of={"n_classes": 3})
    ...     load_teachers(Path(folder), {"n_classes": 3}, None)
    (ConstantTeacher(label=1),)
    """
    there = sorted(path.name for path in place.glob("teacher-*.skops"))
    teachers = []
    for number in range(len(there)):
        found = find_teacher(place, number)
        if found is None:
            raise ValueError(
                f"Expected a finished teacher {number} in {place}, got none. Let the run that trains them "
                "end first."
            )
        said = {name: found[1][name] for name in ("n_classes", "n_labels") if name in found[1]}
        if said and said != dict(made_for):
            wanted, got = (", ".join(f"{n}={v}" for n, v in each.items()) for each in (made_for, said))
            raise ValueError(f"Expected teachers with {wanted} in {place}, got {got} in teacher {number}.")
        teachers.append(load_model(found[0], trusted=tuple(trusted)))
    if not teachers or n_teachers not in (None, len(teachers)):
        wanted = "teachers" if n_teachers is None else f"{n_teachers} teachers"
        raise ValueError(f"Expected {wanted} (teacher-00000.skops, ...) in {place}, got {len(teachers)}.")
    return tuple(teachers)
