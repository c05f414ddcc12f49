"""The engine of secret computation: one end of a two-party link, in a process of its own.

The engine is SPU with its CHEETAH protocol, between two parties, on integers modulo 2^64, with SoftSpoken
oblivious transfer. There is no dealer, and no way to a protocol that needs one. This module is imported by
worker processes; the parties themselves speak to it through `link`.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from ..errors import LinkFailed, MissingExtra
from ._circuits import answers_in_log, build_circuit, require_single_answers
from ._ring import Integers
from .programs import ASKER, HELPER, Program, VoteProgram, program_digest

LINE: Final = "0.9"
"""The versions of the engine that `tiling` was measured on, and whose log it can read."""

_WHERE = "Python 3.11 on Linux (x86-64, aarch64) and macOS (arm64)"


def require_engine() -> None:
    """Refuse where the engine is not installed, naming the extra and the platforms that have it.

    Another line of versions is refused too: how products are cut, and what is read in the engine's log to see
    that it was so, was found by watching this one.
    """
    # Looked for and not imported: a party leaves that to its workers.
    if find_spec("spu") is None:
        here = f"Python {platform.python_version()} on {platform.system()} ({platform.machine()})"
        raise MissingExtra(
            f"Confidential rounds need the engine spu, which exists for {_WHERE}; this is {here}. "
            "There: pip install 'tellers[capc]'. Everything else works without it."
        )
    try:
        found = version("spu")
    except PackageNotFoundError:
        found = "none that is known"
    if not found.startswith(f"{LINE}."):
        raise MissingExtra(
            f"Confidential rounds need the engine spu {LINE}, got {found}: products are cut, and its log is "
            f"read, as that line does it. Install it: pip install 'spu=={LINE}.*'."
        )


# There is one set of settings. Other protocols of the engine have one party, or a third one, deal out the
# randomness: whoever deals can read the others' secrets. They are faster, and would not be noticed.
SETTINGS: Final[Mapping[str, Any]] = {
    "protocol": "CHEETAH",
    "field": "FM64",
    "experimental_enable_colocated_optimization": True,  # An input stays with its owner, not in shares.
    "cheetah_2pc_config": {"ot_kind": "YACL_Softspoken"},
}


def rank_of(side: int, *, votes: bool) -> int:
    """Return a side's rank in the engine: for votes an answerer is rank 0, towards a guardian the asker is.

    >>> rank_of(ASKER, votes=True), rank_of(HELPER, votes=True), rank_of(ASKER, votes=False)
    (1, 0, 0)
    """
    return side ^ votes


class Engine:
    """One end of a link: one side asks and sees outcomes, the other answers or guards and sees none.

    The engine's rank 0 sends where bits become numbers and at the leaves of comparisons, and what it sends
    may be false: it can count a bit many times. `rank_of` says who that is. `read_log` returns what the
    engine logged since it was last called; it is read to see that every product was answered by one
    ciphertext, and by the asker.
    """

    def __init__(
        self,
        side: int,
        *,
        votes: bool,
        own_port: int,
        peer_port: int,
        timeout: float,
        read_log: Callable[[], str],
    ) -> None:
        require_engine()
        import jax
        import spu
        from spu import libspu

        jax.config.update("jax_enable_x64", True)
        self._side, self._votes, self._read_log = side, votes, read_log
        self._rank = rank_of(side, votes=votes)
        self._spu, self._lib = spu, libspu
        self._config = self._configure()
        self._link = libspu.link.create_brpc(
            self._describe(own_port=own_port, peer_port=peer_port, timeout=timeout), self._rank
        )
        self._runtime, self._io = spu.Runtime(self._link, self._config), spu.Io(2, self._config)
        self._compiled: dict[str, Any] = {}

    def _configure(self) -> Any:
        config = self._lib.RuntimeConfig(
            protocol=self._lib.ProtocolKind.CHEETAH, field=self._lib.FieldType.FM64
        )
        # The binding does not name the kind of oblivious transfer; its JSON reader does.
        if not config.ParseFromJsonString(json.dumps(SETTINGS)):
            raise LinkFailed("Expected the engine to take its settings, it refused: another version of spu?")
        if config.protocol != self._lib.ProtocolKind.CHEETAH or config.field != self._lib.FieldType.FM64:
            raise LinkFailed(
                "Expected the engine to keep its settings, it has others: another version of spu?"
            )
        return config

    def _describe(self, *, own_port: int, peer_port: int, timeout: float) -> Any:
        described = self._lib.link.Desc()
        described.id = "link"
        described.recv_timeout_ms = int(timeout * 1000)
        described.http_timeout_ms = int(timeout * 1000)
        described.connect_retry_times = max(1, int(timeout * 10))
        described.connect_retry_interval_ms = 100
        described.brpc_channel_connection_type = "single"
        ports = (peer_port, own_port) if self._rank else (own_port, peer_port)
        for rank, port in enumerate(ports):
            described.add_party(f"link-{rank}", f"127.0.0.1:{port}")
        return described

    def agree(self, what: str, said: str) -> None:
        """Compare a public text with the other side's, and refuse if they differ."""
        if any(other != said for other in self._link.all_gather(said)):
            raise LinkFailed(f"Expected the same {what} on both sides, got two. Use the same settings.")

    def prepare(self, program: Program) -> None:
        """Agree on a program, compile it and run it on zeros, which shows how products are answered."""
        digest = program_digest(program)
        if digest in self._compiled:
            return
        if isinstance(program, VoteProgram) and not self._votes:
            raise LinkFailed("Expected a vote on a link with an answerer, got it on another link.")
        self.agree("versions", versions())
        self.agree("program", digest)
        self._read_log()
        compiled = self._compile(program)
        self.agree("compiled program", hashlib.sha256(compiled.code).hexdigest())
        self._execute(program, compiled, {})
        self._check_products(program)  # Nothing private has been put in yet.
        self._compiled[digest] = compiled

    def _check_products(self, program: Program) -> None:
        multiplies = isinstance(program, VoteProgram) and self._side == ASKER
        require_single_answers(answers_in_log(self._read_log()), multiplies=multiplies)

    def _compile(self, program: Program) -> Any:
        from spu.utils import frontend

        slots = program.slots
        secret = self._lib.Visibility.VIS_SECRET
        executable, _ = frontend.compile(
            frontend.Kind.JAX,
            build_circuit(program),
            [np.zeros(slot.shape, dtype=np.int64) for slot in slots],
            {},
            [slot.name for slot in slots],
            [secret] * len(slots),
            lambda outputs: [f"outcome{i}" for i in range(len(outputs))],
        )
        return executable

    def run(self, program: Program, inputs: Mapping[str, Integers], bound_to: str) -> Integers | None:
        """Run a prepared program on this side's inputs; the outcome for the asker, None for the other side.

        Before any input is put in, both sides compare what the run belongs to (`run_digest`). The log is
        checked after the outcome was opened, and a bad one withholds it; before anything private was put in,
        the same program has run on zeros with a good one.
        """
        compiled = self._compiled.get(program_digest(program))
        if compiled is None:
            raise LinkFailed("Expected a program that was prepared, got another one.")
        own = {slot.name: slot.shape for slot in program.slots if slot.owner == self._side}
        if {name: table.shape for name, table in inputs.items()} != own:
            raise LinkFailed("Expected exactly this side's inputs in their public shapes, got others.")
        self.agree("query, parties, terms and program", bound_to)
        outcome = self._execute(program, compiled, inputs)
        self._check_products(program)
        return outcome

    def _execute(self, program: Program, compiled: Any, inputs: Mapping[str, Integers]) -> Integers | None:
        """Run a program, whose inputs are the engine's no longer afterwards, and open its outcome."""
        secret = self._lib.Visibility.VIS_SECRET
        for slot in program.slots:
            # The side that does not own an input knows its shape only, and says so with zeros.
            table = inputs.get(slot.name, np.zeros(slot.shape, dtype=np.int64))
            shares = self._io.make_shares(
                np.ascontiguousarray(table), secret, rank_of(slot.owner, votes=self._votes)
            )
            self._runtime.set_var(slot.name, shares[self._rank])
        self._runtime.run(compiled)
        for slot in program.slots:
            self._runtime.del_var(slot.name)
        return self._open(program)

    def _open(self, program: Program) -> Integers | None:
        """Hand the outcome to the asker: the other side sends its share and learns nothing."""
        own = self._runtime.get_var("outcome0")
        self._runtime.del_var("outcome0")
        if self._side == HELPER:
            parts = [bytes(own.meta), *(bytes(chunk) for chunk in own.share_chunks)]
            told = json.dumps([part.hex() for part in parts])  # The binding sends text.
            self._link.send(1 - self._rank, told)
            return None
        received = json.loads(self._link.recv(1 - self._rank))
        other = self._lib.Share()
        other.meta, other.share_chunks = bytes.fromhex(received[0]), [bytes.fromhex(c) for c in received[1:]]
        outcome = np.asarray(self._io.reconstruct([other, own] if self._rank else [own, other]))
        if outcome.shape != program.output_shape:
            raise LinkFailed("Expected an outcome in its public shape, got another one.")
        return outcome.astype(np.int64)


def run_digest(query: str, parties: tuple[str, str], terms: str, program: Program) -> str:
    """Return what one run of a program belongs to: its query, its asker and helper, and the terms."""
    told = [query, *parties, terms, program_digest(program)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def versions() -> str:
    """Return what must be the same on both sides for circuits to be the same."""
    found = {"python": ".".join(str(n) for n in sys.version_info[:2])}
    for name in ("spu", "jax", "jaxlib"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return " ".join(f"{name} {said}" for name, said in found.items())
