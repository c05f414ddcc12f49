"""The engine of secret computation: one end of a two-party link, in a process of its own.

The engine is SPU with its CHEETAH protocol, between two parties, on integers modulo 2^64, with SoftSpoken
oblivious transfer. There is no dealer, and no way to a protocol that needs one. This module is imported by
worker processes; the parties themselves speak to it through `link`.
"""

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from ..errors import LinkFailed, MissingExtra
from ._circuits import answers_in_log, build_circuit, require_single_answers
from ._ring import Integers
from .programs import ASKER, HELPER, Program, Slot, VoteProgram, program_digest

_BOTH_WAYS: Final = (Slot("a", (1, 1), ASKER), Slot("b", (1, 1), HELPER))
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


class Engine:
    """One end of a link: rank 0 asks and sees outcomes, rank 1 answers or guards and sees none.

    `read_log` returns what the engine logged since it was last called; it is read to see that every product
    was answered by one ciphertext.
    """

    def __init__(
        self,
        rank: int,
        *,
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
        self._rank, self._read_log = rank, read_log
        self._spu, self._lib = spu, libspu
        self._config = self._configure()
        self._link = libspu.link.create_brpc(
            self._describe(own_port=own_port, peer_port=peer_port, timeout=timeout), rank
        )
        self._runtime, self._io = spu.Runtime(self._link, self._config), spu.Io(2, self._config)
        self._compiled: dict[str, Any] = {}
        self._has_watched = False

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
        ports = (own_port, peer_port) if self._rank == ASKER else (peer_port, own_port)
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
        self.agree("versions", versions())
        self.agree("program", digest)
        self._read_log()
        if isinstance(program, VoteProgram) and not self._has_watched:
            self._watch_log()
        compiled = self._compile(program.slots, build_circuit(program))
        self.agree("compiled program", hashlib.sha256(compiled.code).hexdigest())
        self._execute(program.slots, compiled, {})
        self._open(program)
        # Nothing private has been put in yet.
        require_single_answers(answers_in_log(self._read_log()))
        self._compiled[digest] = compiled

    def _watch_log(self) -> None:
        """Multiply zeros, once at either side, and see this side's own product in its own log.

        Of two parties the one that multiplies sends the answer, and logs it; it is the other's key that hides
        the one factor, and the randomness of the answer that hides its own. So each side needs its own log
        alone to keep its own factors, and this shows that it is told of them there.
        """
        compiled = self._compile(_BOTH_WAYS, lambda a, b: a @ b + b @ a)
        self._execute(_BOTH_WAYS, compiled, {})
        self._runtime.del_var("outcome0")
        require_single_answers(answers_in_log(self._read_log()), n_at_least=1)
        self._has_watched = True

    def _compile(self, slots: Sequence[Slot], circuit: Callable[..., Any]) -> Any:
        from spu.utils import frontend

        secret = self._lib.Visibility.VIS_SECRET
        executable, _ = frontend.compile(
            frontend.Kind.JAX,
            circuit,
            [np.zeros(slot.shape, dtype=np.int64) for slot in slots],
            {},
            [slot.name for slot in slots],
            [secret] * len(slots),
            lambda outputs: [f"outcome{i}" for i in range(len(outputs))],
        )
        return executable

    def run(self, program: Program, inputs: Mapping[str, Integers], bound_to: str) -> Integers | None:
        """Run a prepared program on this side's inputs; the outcome at rank 0, None at rank 1.

        Before any input is put in, both sides compare what the run belongs to (`run_digest`). The log is
        checked after the outcome was opened, and a bad one withholds it; before anything private was put in,
        the same program has run on zeros with a good one.
        """
        compiled = self._compiled.get(program_digest(program))
        if compiled is None:
            raise LinkFailed("Expected a program that was prepared, got another one.")
        own = {slot.name: slot.shape for slot in program.slots if slot.owner == self._rank}
        if {name: table.shape for name, table in inputs.items()} != own:
            raise LinkFailed("Expected exactly this side's inputs in their public shapes, got others.")
        self.agree("query, parties, terms and program", bound_to)
        self._execute(program.slots, compiled, inputs)
        outcome = self._open(program)
        require_single_answers(answers_in_log(self._read_log()))
        return outcome

    def _execute(self, slots: Sequence[Slot], compiled: Any, inputs: Mapping[str, Integers]) -> None:
        """Run a circuit; its inputs are the engine's no longer afterwards, and its outcome is in shares."""
        secret = self._lib.Visibility.VIS_SECRET
        for slot in slots:
            # The side that does not own an input knows its shape only, and says so with zeros.
            table = inputs.get(slot.name, np.zeros(slot.shape, dtype=np.int64))
            shares = self._io.make_shares(np.ascontiguousarray(table), secret, slot.owner)
            self._runtime.set_var(slot.name, shares[self._rank])
        self._runtime.run(compiled)
        for slot in slots:
            self._runtime.del_var(slot.name)

    def _open(self, program: Program) -> Integers | None:
        """Hand the outcome to the asker: the other side sends its share and learns nothing."""
        own = self._runtime.get_var("outcome0")
        self._runtime.del_var("outcome0")
        if self._rank == HELPER:
            parts = [bytes(own.meta), *(bytes(chunk) for chunk in own.share_chunks)]
            self._link.send(ASKER, json.dumps([part.hex() for part in parts]))  # The binding sends text.
            return None
        received = json.loads(self._link.recv(HELPER))
        other = self._lib.Share()
        other.meta, other.share_chunks = bytes.fromhex(received[0]), [bytes.fromhex(c) for c in received[1:]]
        outcome = np.asarray(self._io.reconstruct([own, other]))
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
