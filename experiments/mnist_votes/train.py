"""Train 250 MNIST teachers in one batched program and keep their ballots.

Each teacher sees 240 of the 60,000 training images and nothing else; all of them then
vote on the first 9,000 test images, which play the public, unlabelled pool. The network is
the one of the personalised PATE paper: convolution 32 3x3, batch norm, pooling, fully connected
100, batch norm, fully connected 10; images turn by up to 7.5 degrees and shift by up to 7 %.

    python experiments/mnist_votes/train.py --data DIR --out votes.npz

Needs torch; seconds on a GPU, about an hour on two CPU cores. Neither the product nor its tests need this
script. The ballots kept in `examples/` were made by an earlier form of it, from other random numbers.
"""

import argparse
import gzip
import time
from pathlib import Path

import numpy as np

from tellers.data.images import read_idx
from tellers.nn.classifier import TorchClassifier
from tellers.teachers import partition, save_votes, train_ensemble


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the four MNIST idx files")
    parser.add_argument("--out", type=Path, required=True, help="the .npz to write")
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--queries", type=int, default=9000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()

    def load(name: str) -> np.ndarray:
        return read_idx(gzip.decompress((args.data / f"{name}-ubyte.gz").read_bytes()))

    images, labels = load("train-images-idx3").astype(np.float32) / 255, load("train-labels-idx1")
    public = load("t10k-images-idx3")[: args.queries].astype(np.float32) / 255
    truth = load("t10k-labels-idx1")[: args.queries]

    start = time.perf_counter()
    ensemble = train_ensemble(
        TorchClassifier("cnn", epochs=args.epochs, batch_size=40, rotation=7.5, shift=0.07),
        images, labels, partition(len(images), args.teachers, seed=args.seed), n_classes=10, seed=args.seed,
        progress=lambda done, of: print(f"{done} of {of}", end="\r", flush=True),
    )  # fmt: skip
    votes = ensemble.vote(public)
    accuracy = (votes.ballots == truth).mean()
    plurality = (votes.counts.argmax(1) == truth).mean()
    print(
        f"{ensemble.engine}, seed {args.seed}, {args.epochs} epochs, {time.perf_counter() - start:.1f} s: "
        f"teachers {accuracy:.4f}, plurality {plurality:.4f}"
    )
    save_votes(args.out, votes, truth=truth)


if __name__ == "__main__":
    main()
