"""Where torch computes; teachers and students ask the same way."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def find_device(name: str) -> "torch.device":
    """Return the device of a name; "auto" is a GPU where there is one.

    >>> find_device("cpu")
    device(type='cpu')
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"Expected device 'auto', 'cpu' or 'cuda', got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"Expected a CUDA device for device={name!r}, found none. Take device='auto'.")
    return device
