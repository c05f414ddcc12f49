"""Seconds and bytes of a confidential query: all answerers' votes, then the guardian's decision, over TLS.

    python benchmarks/parties.py --answerers 5 --batch 1 100

Every link is two worker processes on this machine, linked over loopback TLS; models and inputs are made up
(64 features, 10 classes or 5 labels). The asker talks to all answerers at once. Each outcome is compared with
the clear computation. CPU seconds are those of all workers together.
"""

import argparse
import os
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from tellers.errors import MissingExtra
from tellers.parties.clear import clear_decision, clear_votes
from tellers.parties.engine import require_engine
from tellers.parties.link import Link
from tellers.parties.programs import ASKER, HELPER, DecisionProgram, VoteProgram
from tellers.parties.tunnel import Identity, dial, listen

POOL = ThreadPoolExecutor(64)


def certificate(folder: Path, name: str) -> None:
    """Write a self-signed certificate and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))


def make_link(folder: Path) -> tuple[Link, Link]:
    """Return both ends of a new link, open."""
    door = listen(("127.0.0.1", 0))
    one = Identity(folder / "a.pem", folder / "a.key", (folder / "b.pem",))
    other = Identity(folder / "b.pem", folder / "b.key", (folder / "a.pem",))
    ends = (
        Link(ASKER, lambda: dial(door.getsockname()), one),
        Link(HELPER, lambda: door.accept()[0], other),
    )
    list(POOL.map(Link.open, ends))
    return ends


def cpu_of(links: list[tuple[Link, Link]]) -> float:
    """Return the CPU seconds that all workers have taken so far; zero where they cannot be read."""
    total = 0
    for end in (end for ends in links for end in ends):
        try:
            fields = Path(f"/proc/{end.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def query(links, guard, program, decide, models, generator):
    """Ask one batch; return seconds, bytes, and whether the labels are those of the clear computation."""
    x = generator.integers(-(2**16), 2**16, (program.batch, program.n_features))
    shape = program.output_shape
    masks = [np.frombuffer(os.urandom(8 * shape[0] * shape[1]), np.int64).reshape(shape) for _ in links]
    drawn = generator.integers(-1, 2, shape)
    ranks = None if decide.is_multilabel else np.argsort(generator.random(shape), axis=1)
    start = time.perf_counter()
    helpers = [POOL.submit(far.run, program, {"mask": mask}) for (_, far), mask in zip(links, masks)]
    asked = [POOL.submit(near.run, program, {"x": x}) for near, _ in links]
    with np.errstate(over="ignore"):
        shares = sum(one.result() for one in asked)
        held = sum(masks)
    for one in helpers:
        one.result()
    given = decide.guardian_inputs(held, answer_noise=drawn, ranks=ranks)
    other = POOL.submit(guard[1].run, decide, given)
    labels = decide.decode(guard[0].run(decide, decide.asker_inputs(shares)))
    other.result()
    seconds = time.perf_counter() - start
    n_bytes = sum(near.traffic.n_bytes for near, _ in [*links, guard])
    with np.errstate(over="ignore"):
        clear = sum(clear_votes(program, model, x) - mask for model, mask in zip(models, masks))
    return seconds, n_bytes, np.array_equal(labels, clear_decision(decide, clear, given))


def measure(folder: Path, kind: str, task: str, *, n_answerers: int, batches: list[int], repeat: int) -> None:
    """Open the links once and print one line per batch size."""
    generator = np.random.default_rng(7)
    n_outputs = 10 if task == "single" else 5
    hidden = (32,) if kind == "network" else ()
    links = [make_link(folder) for _ in range(n_answerers)]
    guard = make_link(folder)
    for batch in batches:
        program = VoteProgram(
            model=kind, task=task, n_features=64, n_outputs=n_outputs, batch=batch, hidden=hidden
        )
        majority = (n_answerers // 2 + 1,) * n_outputs
        decide = DecisionProgram(
            rule="argmax" if task == "single" else "labels", n_outputs=n_outputs, batch=batch,
            n_answerers=n_answerers, limits=() if task == "single" else majority,
        )  # fmt: skip
        models = [
            {slot.name: generator.integers(-(2**12), 2**12, slot.shape) for slot in program.model_slots}
            for _ in links
        ]
        start = time.perf_counter()
        list(POOL.map(lambda end, p=program: end.prepare(p), [end for ends in links for end in ends]))
        list(POOL.map(lambda end, p=decide: end.prepare(p), guard))
        prepared = time.perf_counter() - start
        first = sum(near.traffic.n_bytes for near, _ in [*links, guard])
        for (_, far), model in zip(links, models):
            far.keep_model(model)
        before, runs = cpu_of([*links, guard]), []
        for _ in range(repeat):
            runs.append(query(links, guard, program, decide, models, generator))
        cpu = (cpu_of([*links, guard]) - before) / repeat
        assert all(same for _, _, same in runs), "an outcome differs from the clear computation"
        seconds = sorted(s for s, _, _ in runs)
        n_bytes = np.mean([n for _, n, _ in runs])
        print(
            f"| {task}, {kind} | {n_answerers} | {batch} | {prepared:.1f} s, {first / 1e6:.0f} MB "
            f"| {seconds[0]:.2f}-{seconds[-1]:.2f} | {cpu:.2f} | {batch / seconds[0]:.0f} "
            f"| {n_bytes / batch / 1e6:.3f} |",
            flush=True,
        )
    for ends in [*links, guard]:
        for end in ends:
            end.close()


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answerers", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--repeat", type=int, default=4)
    parser.add_argument("--kind", nargs="+", default=["linear", "network"], choices=["linear", "network"])
    parser.add_argument("--task", nargs="+", default=["single", "multi"], choices=["single", "multi"])
    asked = parser.parse_args()
    try:
        require_engine()
    except MissingExtra as missing:
        print(missing)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print("| task, model | answerers | batch | first time | s | CPU s | queries/s | MB/query |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in ("a", "b"):
            certificate(folder, name)
        for task in asked.task:
            for kind in asked.kind:
                measure(
                    folder, kind, task, n_answerers=asked.answerers, batches=asked.batch, repeat=asked.repeat
                )


if __name__ == "__main__":
    main()
