"""Python processes without their imports: `run` and `Popen` as in `subprocess`, from a server that forks.

`python -m tellers` spends two seconds on importing NumPy, SciPy, scikit-learn, matplotlib and torch. A server
beside each process of tests has them in memory, and forks a child for every program that is started here. The
child has arguments, folder, environment, files and signals of its own, and the process of tests for a parent:
it is waited for, stopped and killed as any other, and its CPU time counts. It does not flush to the disk
(`os.fsync`), shares its hash seed with others and finds modules loaded; where that matters, use `subprocess`.
"""

import atexit
import contextlib
import ctypes
import gc
import inspect
import json
import locale
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from importlib import import_module, invalidate_caches
from pathlib import Path

# What commands import on their way: the server has it ready. What is not installed is passed over.
READY = (
    "numpy", "scipy.optimize", "scipy.stats", "sklearn.ensemble", "sklearn.linear_model", "sklearn.svm",
    "sklearn.naive_bayes", "sklearn.tree", "sklearn.datasets", "sklearn.pipeline", "torch", "joblib",
    "skops.io", "matplotlib.figure", "matplotlib.backends.backend_svg", "rich.progress", "rich.table",
    "typer.rich_utils", "fastapi", "uvicorn", "httpx", "argon2", "structlog", "cryptography.x509",
    "dp_accounting.pld.privacy_loss_distribution",
    "tellers.cli", "tellers.accounting", "tellers.runs.pipeline", "tellers.runs.report", "tellers.runs.sound",
    "tellers.service", "tellers.parties._answer", "tellers.parties._guard", "tellers.parties.ask",
    "tellers.parties.collaboration.learning", "tellers.ledger.sql",
    "tellers.students.torch", "tellers.teachers.store", "tellers.teachers.torch",
)  # fmt: skip
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h: orphans become children of this process
_HEAD = struct.Struct("!q")


class Popen(subprocess.Popen):
    """`[sys.executable, "-m" or "-c" or a script, ...]`, forked; anything else starts as it always does."""

    plots = True  # whether children draw what a report shows; tests/conftest.py says for whom they do not

    def _execute_child(self, *given):
        names = list(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]
        asked = dict(zip(names, given, strict=True))
        words = list(map(os.fsdecode, asked["args"]))
        is_program = words[0] == sys.executable and (words[1] in ("-m", "-c") or words[1][:1] != "-")
        if sys.platform != "linux" or not is_program or asked["preexec_fn"] or asked["pass_fds"]:
            super()._execute_child(*given)
            return
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        theirs = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        environment = os.environ if asked["env"] is None else asked["env"]
        start = {
            "words": words[1:],
            "cwd": os.path.abspath(os.fsdecode(asked["cwd"] or ".")),
            "environment": {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
            "new_session": asked["start_new_session"],
            "plots": Popen.plots,
        }
        self.pid = _started(start, [own if own >= 0 else at for at, own in enumerate(theirs)])
        self._child_created = True
        self._close_pipe_fds(*(asked[name] for name in pipes))


def run(args, *, input=None, capture_output=False, timeout=None, check=False, **options):
    """Do what `subprocess.run` does, in a forked process."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(args, **options) as process:
        try:
            said, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, said, errors)
    if check:
        done.check_returncode()
    return done


# --- In the process of tests: the server, and asking it for a child. ---

_lock = threading.Lock()
_server: list[socket.socket] = []


def _started(start, files):
    """Return the process id of a new child of this process that does what `start` says."""
    with _lock:
        if not _server:
            _server.append(_serving())
        # The child's own parent ends at once: the child goes to the nearest process that takes orphans in.
        prctl = ctypes.CDLL(None).prctl
        prctl(_SUBREAPER, 1)
        try:
            _send(_server[0], start, files)
            answer, _ = _receive(_server[0])
        finally:
            prctl(_SUBREAPER, 0)
    return answer


def _serving():
    ours, theirs = socket.socketpair()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", __file__, str(theirs.fileno()), *filter(None, sys.path)]
    with theirs:
        process = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )

    def end():
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _send(connection, message, files=()):
    data = json.dumps(message).encode()
    socket.send_fds(connection, [_HEAD.pack(len(data))], list(files))
    connection.sendall(data)


def _receive(connection):
    """Return a message and the files that came with it, or None where the other side has closed."""
    head, files, _, _ = socket.recv_fds(connection, _HEAD.size, 3)
    if not head:
        return None
    data, size = b"", _HEAD.unpack(head)[0]
    while len(data) < size:
        data += connection.recv(size - len(data))
    return json.loads(data), files


# --- In the server, and in its children. ---


def _serve(connection):
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    installed = [path for path in sys.path if path not in given]
    sys.path[:] = sys.argv[2:]
    for name in READY:
        with contextlib.suppress(ModuleNotFoundError):
            import_module(name)
    sys.modules["tellers.cli"].build()  # which imports every command
    os.fsync = lambda _handle: None
    gc.collect()
    gc.freeze()  # collecting in a child would copy every page
    assert len(os.listdir("/proc/self/task")) == 1, (
        "a thread that holds a lock would not be there to let it go"
    )
    while (asked := _receive(connection)) is not None:
        start, files = asked
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                for handle in (reading, writing):
                    os.close(handle)
                connection.close()
                _become(start, files, installed)
            os.write(writing, _HEAD.pack(pid))
            os._exit(0)
        for handle in (writing, *files):
            os.close(handle)
        (pid,) = _HEAD.unpack(os.read(reading, _HEAD.size))
        os.close(reading)
        os.waitpid(between, 0)
        _send(connection, pid)


def _become(start, files, installed):
    """Be the process that was asked for, to its end."""
    code = 1
    try:
        _settle(start, files, installed)
        _program(start["words"])
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        if not isinstance(exit.code, int | None):
            print(exit.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = 120  # as the interpreter does where its output cannot be written
    os._exit(code & 0xFF)


def _settle(start, files, installed):
    """Take folder, environment, files, signals and seeds as a new process has them."""
    if start["new_session"]:
        os.setsid()
    for at, handle in enumerate(files):
        os.dup2(handle, at)
    for handle in files:
        if handle > 2:
            os.close(handle)
    os.chdir(start["cwd"])
    os.environ.clear()
    os.environ.update(start["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    encoding = encoding or locale.getpreferredencoding(False)
    errors = errors or "strict"
    sys.stdin = sys.__stdin__ = open(0, encoding=encoding, errors=errors)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=encoding, errors=errors)  # noqa: SIM115
    sys.stdout.reconfigure(write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
    sys.stderr = sys.__stderr__ = open(2, "w", 1, encoding, "backslashreplace")  # noqa: SIM115
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *installed]
    invalidate_caches()
    import numpy as np

    np.random.seed()  # noqa: NPY002 -- the global state, which others may draw from
    if "torch" in sys.modules:
        sys.modules["torch"].seed()
    if not start["plots"]:
        from tellers.runs.report import _plots

        _plots.draw_svg = lambda draw, *, title, **_: f"<p>{title}</p>"
    if any(name.startswith("COVERAGE_PROCESS") for name in os.environ):
        import coverage

        coverage.process_startup()


def _program(words):
    """Run a module, the words after `-c`, or a script, as the interpreter would."""
    kind, *rest = words
    if kind == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.path.insert(0, "")
        sys.argv[:] = ["-c", *rest[1:]]
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        sys.path.insert(0, str(Path(kind).resolve().parent))
        sys.argv[:] = words
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as server:
        _serve(server)
