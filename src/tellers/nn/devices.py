"""Where torch computes: the device, its random numbers, its threads and its precision."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..errors import require_count


def find_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"Expected device 'auto', 'cpu' or 'cuda', got {name!r}.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"Expected a CUDA device for device={name!r}, found none. Take device='auto'.")
    return device


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Let everything that torch draws on a device come from a seed, and put its generators back after."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def limited_threads(device: torch.device, n_threads: int = 1) -> Iterator[None]:
    """Compute on so many threads of a CPU: sums change with their number, and processes take the others."""
    require_count(n_threads=n_threads)
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(int(n_threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def gpu_arithmetic(
    device: torch.device, *, exact: bool, benchmark: bool, deterministic: bool | None = None
) -> Iterator[None]:
    """Set how a GPU rounds matrix products and whether it times its kernels, and put it back after."""
    if device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic
    torch.set_float32_matmul_precision("highest" if exact else "high")
    cudnn.benchmark = benchmark
    if deterministic is not None:
        cudnn.deterministic = deterministic
    try:
        yield
    finally:
        matmul, cudnn.benchmark, cudnn.deterministic = before
        torch.set_float32_matmul_precision(matmul)
