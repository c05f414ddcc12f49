"""Torch teachers: all in one batched program against one after another, and their votes.

    python benchmarks/teachers.py                                    on one CPU thread, under a minute
    python benchmarks/teachers.py --device cuda --data DIR           250 MNIST teachers, 60 epochs
    python benchmarks/teachers.py --device cuda --data DIR --sweep   the same with several sets of options
    python benchmarks/teachers.py --data DIR --votes votes.npz       train, and keep the ballots

Needs numpy, torch, safetensors and this package's teacher modules alone. MNIST is read from --data or
TELLERS_DATA; without either, images are made up and accuracies mean nothing. The loop is timed on some
teachers and scaled up. Times on a CPU are those the process got (`time.process_time`).
"""

import argparse
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from tellers.data._directory import unpack
from tellers.data.images import read_idx
from tellers.nn.batched import Batched
from tellers.nn.classifier import TorchClassifier
from tellers.nn.networks import build_network
from tellers.nn.teacher_training import Recipe, TrainingSet, train_together
from tellers.teachers import Partition, partition, save_votes, train_ensemble
from tellers.teachers.torch import TorchEnsemble

SEED = 7
SHAPE = (1, 28, 28)
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Images:
    """Images to learn from and to vote on."""

    X: np.ndarray
    y: np.ndarray
    queries: np.ndarray
    truth: np.ndarray
    real: bool


def mnist(folder: Path) -> Images:
    """Return MNIST from the folder of its four idx files, or from `mnist` inside the folder."""
    folder = folder / "mnist" if (folder / "mnist").is_dir() else folder

    def read(name: str) -> np.ndarray:
        return read_idx(unpack(next(folder.glob(f"{name}-ubyte*"))))

    def pixels(name: str) -> np.ndarray:
        images = read(name)
        return images.reshape(len(images), *SHAPE).astype(np.float32) / 255

    labels = read("train-labels-idx1").astype(np.int64), read("t10k-labels-idx1").astype(np.int64)
    return Images(pixels("train-images-idx3"), labels[0], pixels("t10k-images-idx3"), labels[1], real=True)


def made_up() -> Images:
    """Return noise in the shape of MNIST."""
    rng = np.random.default_rng(SEED)
    X, queries = (rng.random((n, *SHAPE), dtype=np.float32) for n in (60_000, 10_000))
    return Images(X, rng.integers(10, size=60_000), queries, rng.integers(10, size=10_000), real=False)


def middle(images: np.ndarray) -> np.ndarray:
    """Return the 8x8 pixels in the middle: rows as small as many tables have them."""
    return np.ascontiguousarray(images[:, :, 10:18, 10:18])


def seconds(work: Callable[[], T], device: str) -> tuple[float, T]:
    """Return how long some work takes, until the device has finished, and what came of it."""
    if device == "cpu":
        start = time.process_time()
        made = work()
        return time.process_time() - start, made
    torch.cuda.synchronize()
    start = time.perf_counter()
    made = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, made


def train(
    images: Images, parts: Partition, *, network: str, epochs: int, device: str, engine: object
) -> TorchEnsemble:
    """Train teachers as in the personalised PATE paper, in this process."""
    model = TorchClassifier(
        network, epochs=epochs, device=device, rotation=7.5, shift=0.07
    )  # fmt: skip
    return train_ensemble(
        model, images.X, images.y, parts, n_classes=10, seed=SEED, engine=engine, n_jobs=1
    )  # fmt: skip


def first_of(parts: Partition, n: int) -> Partition:
    """Return some of the parts."""
    return Partition(parts.parts[:n], unit="one record")


def compare(network: str, images: Images, args: argparse.Namespace, engines: dict[str, Batched]) -> None:
    """Print batched against looped, for one network."""
    # Always parts of the size that 250 teachers have: fewer teachers are some of those.
    parts = first_of(partition(len(images.X), max(250, args.teachers), seed=SEED), args.teachers)
    n_loop = min(args.loop_teachers, args.teachers)

    def work(engine: object, n_teachers: int, epochs: int) -> TorchEnsemble:
        some = first_of(parts, n_teachers)
        return train(images, some, network=network, epochs=epochs, device=args.device, engine=engine)

    for engine in (next(iter(engines.values())), "loop"):  # what is done once per process is not timed
        work(engine, 2, 1)
    loop = seconds(lambda: work("loop", n_loop, args.epochs), args.device)[0] * args.teachers / n_loop
    what = f"{network}, {args.teachers} teachers, {args.epochs} epochs"
    print(f"{what}: loop {loop:.2f} s (from {n_loop} teachers)", flush=True)
    for name, engine in engines.items():
        try:
            taken, ensemble = seconds(
                lambda engine=engine: work(engine, args.teachers, args.epochs), args.device
            )  # fmt: skip
        except (MemoryError, RuntimeError) as error:
            print(f"  {name:50} failed: {error} {reason(network, images, parts, args, engine)}", flush=True)
            continue
        shown = quality(ensemble, images, args)
        print(f"  {name:50} {taken:8.2f} s  {loop / taken:6.1f} times faster  {shown}", flush=True)


def reason(network: str, images: Images, parts: Partition, args: argparse.Namespace, engine: Batched) -> str:
    """Return the error itself, which an ensemble keeps to itself: these rows are published."""
    recipe = Recipe(epochs=1, batch_size=40, rotation=7.5, shift=0.07)
    rows, seeds = np.concatenate(parts.parts), range(len(parts))
    shape = images.X.shape[1:]
    known = TrainingSet(images.X[rows], images.y[rows], list(parts.sizes), seeds, recipe)
    networks = [build_network(network, shape, n_classes=10, seed=seed) for seed in seeds]
    try:
        train_together(networks, known, shape=shape, device=torch.device(args.device), options=engine)
    except Exception as error:
        return str(error)
    return "It does not fail again."


def quality(ensemble: TorchEnsemble, images: Images, args: argparse.Namespace) -> str:
    """Return accuracies on the first queries; what these teachers learned from is published."""
    votes, truth = ensemble.vote(images.queries[: args.queries]), images.truth[: args.queries]
    mean, plurality = (votes.ballots == truth).mean(), (votes.counts.argmax(1) == truth).mean()
    return f"teachers {mean:.4f}, plurality {plurality:.4f}" if images.real else "(made-up images)"


def vote(images: Images, args: argparse.Namespace) -> None:
    """Print how long 250 teachers take to vote on 10,000 images; what they learned does not matter here."""
    parts = first_of(partition(len(images.X), 30_000, seed=SEED), 250)
    engine = Batched(chunk=50 if args.device == "cuda" else 5)
    ensemble = train(images, parts, network="cnn", epochs=1, device=args.device, engine=engine)
    n_asked = min(args.queries, len(images.queries))
    ensemble.vote(images.queries[:50])
    taken = seconds(lambda: ensemble.vote(images.queries[:n_asked]), args.device)[0]
    taken *= len(images.queries) / n_asked
    scaled = "" if n_asked == len(images.queries) else f" (from {n_asked} images)"
    print(f"cnn, votes of 250 teachers on {len(images.queries):,} images: {taken:.2f} s{scaled}")


def engines_of(args: argparse.Namespace) -> dict[str, Batched]:
    """Return the sets of options to try, by name."""
    own = Batched(
        chunk=args.chunk, precision=args.precision, convolution=args.convolution, cuda_graph=args.cuda_graph,
        channels_last=args.channels_last, benchmark=args.benchmark,
    )  # fmt: skip
    tried = [own]
    if args.sweep:
        tried = [
            Batched(chunk=args.chunk, **options)
            for options in (
                {"convolution": "unfold"},
                {"convolution": "unfold", "cuda_graph": False},
                {"convolution": "unfold", "precision": "bfloat16"},
                {"convolution": "unfold", "precision": "float32"},
                {"convolution": "grouped"},
                {"convolution": "grouped", "benchmark": True},
                {"convolution": "grouped", "benchmark": True, "channels_last": True},
                {"convolution": "grouped", "benchmark": True, "precision": "bfloat16"},
            )
        ]
    return {
        f"{e.name}{'' if e.cuda_graph else ', no graph'}{', channels last' * e.channels_last}"
        f"{', benchmark' * e.benchmark}".removeprefix("batched, "): e
        for e in tried
    }  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("TELLERS_DATA"), help="directory with MNIST"
    )
    parser.add_argument("--networks", nargs="+", help="mlp, cnn; on a GPU the cnn alone")
    parser.add_argument("--teachers", type=int, help="how many are batched (24; on a GPU 250)")
    parser.add_argument("--epochs", type=int, help="(2; on a GPU 60)")
    parser.add_argument("--loop-teachers", type=int, default=3, help="how many of them the loop is timed on")
    parser.add_argument("--queries", type=int, help="how many test images are voted on (500; on a GPU all)")
    parser.add_argument("--chunk", type=int, help="teachers per program (8 to 32; on a GPU 250)")
    parser.add_argument("--precision", default="tf32", choices=["float32", "tf32", "bfloat16"])
    parser.add_argument("--convolution", default="auto", choices=["auto", "grouped", "unfold"])
    parser.add_argument("--cuda-graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--benchmark", action="store_true", help="let cuDNN time its kernels")
    parser.add_argument("--sweep", action="store_true", help="try several sets of options")
    parser.add_argument("--votes", type=Path, help="write the ballots and the truth here, and nothing else")
    args = parser.parse_args()
    on_gpu = args.device == "cuda"
    args.networks = args.networks or (["cnn"] if on_gpu else ["mlp", "cnn"])
    args.teachers = args.teachers or (250 if on_gpu or args.votes else 24)
    args.epochs = args.epochs or (60 if on_gpu or args.votes else 2)
    args.queries = args.queries or (10_000 if on_gpu or args.votes else 500)
    return args


def keep_votes(images: Images, args: argparse.Namespace, engine: Batched) -> None:
    """Train one ensemble and write its ballots."""
    parts = partition(len(images.X), args.teachers, seed=SEED)
    how = {"network": args.networks[-1], "epochs": args.epochs, "device": args.device, "engine": engine}
    taken, ensemble = seconds(lambda: train(images, parts, **how), args.device)
    votes = ensemble.vote(images.queries[: args.queries])
    save_votes(args.votes, votes, truth=images.truth[: args.queries])
    print(f"trained in {taken:.2f} s, {quality(ensemble, images, args)}; ballots in {args.votes}")


def main() -> None:
    args = arguments()
    images = made_up() if args.data is None else mnist(Path(args.data))
    if args.device == "cpu":
        torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if args.device == "cuda" else f"{platform.machine()}, one thread"
    print(f"{where}, torch {torch.__version__}, NumPy {np.__version__}, seed {SEED}")
    print("images: MNIST" if images.real else "images: made up (no --data, no TELLERS_DATA)")
    engines = engines_of(args)
    if args.votes is not None:
        keep_votes(images, args, next(iter(engines.values())))
        return
    start = time.perf_counter()
    for number in range(args.teachers):
        build_network(args.networks[-1], SHAPE, n_classes=10, seed=number)
    built = time.perf_counter() - start
    print(f"{args.teachers} networks built on the CPU: {built:.2f} s, part of every time below", flush=True)
    for network in args.networks:
        compare(network, images, args, engines)
    if args.device == "cpu":
        small = replace(images, X=middle(images.X), queries=middle(images.queries))
        print("the same on the middle 8x8 pixels: ", end="")
        compare("mlp", small, args, engines)
    vote(images, args)


if __name__ == "__main__":
    main()
