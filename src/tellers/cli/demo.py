"""`tellers demo`: the whole of it on embedded data, in about a minute."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from . import options

if TYPE_CHECKING:
    from ..runs.settings.sections import StudentConfig


# Small and quick, for three hundred images: a few seconds on one core.
_NETWORK = {
    "network": "mlp", "width": 16, "steps": 500, "batch_size": 64, "pool_batch_size": 128, "threshold": 0.9,
    "test_views": 8, "device": "cpu",
}  # fmt: skip


def command(
    out: Annotated[
        Path, options.option("Folder of the run; one that is there is gone on with.", metavar="DIR")
    ] = Path("tellers-demo"),
    as_json: options.Json = False,
) -> None:
    """Teach a student handwritten digits from teachers that may not show theirs.

    Teachers learn from disjoint shares of scikit-learn's digits and vote on images nobody labelled; only
    noisy winners leave the room, each charged to a ledger before it is drawn. Needs no file and no network.
    The digits are public, so the private numbers are shown too, to see what they would say. Where torch is
    installed, the student is a network that learns from the images without a label as well.

    Example: tellers demo --out demo
    """
    from dataclasses import replace

    from ..runs.pipeline import run
    from ..runs.settings.files import default_config
    from ..runs.settings.sections import ReportConfig
    from . import show as shown
    from .outcome import steps_shown, tell

    usual = default_config()
    settings = replace(usual, report=ReportConfig(private=True), student=_student() or usual.student)
    with steps_shown(wanted=not as_json) as show:
        result = run(settings, out, resume=True, show=show)
    if as_json:
        print(json.dumps({**result.as_dict(), "folder": str(out)}))
    else:
        tell(result, out, public_data=True)
        if settings.student == usual.student:
            better = "with torch (pip install 'tellers[torch]') the student is a network, and learns more."
            shown.console().print(shown.note(better))


def _student() -> "StudentConfig | None":
    """Return the student that is better than the usual one, where there is torch for it."""
    from ..runs.settings.sections import StudentConfig

    if find_spec("torch") is None:
        return None
    import torch

    # Steps this small gain nothing from a second thread, and wait long for one on a busy machine.
    torch.set_num_threads(1)
    return StudentConfig(kind="semi_supervised", model="mean_teacher", parameters=_NETWORK)
