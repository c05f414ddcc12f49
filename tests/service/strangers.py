"""Strangers and askers of a service, each in a process of its own: slow and hostile connections, by hand.

    python strangers.py strangers PORT KIND N PER_SECOND SECONDS
    python strangers.py askers PORT N EVERY SECONDS < keys

Strangers come from twenty loopback addresses, so many a second, and hold on to what they have. Askers ask for
a label each so many seconds, over connections that they change now and then, and try nothing twice; they
print how long each answer took, and what failed, as JSON.
"""

import asyncio
import contextlib
import json
import os
import resource
import secrets
import socket
import sys
import time

N_ADDRESSES = 20
CHANGED_EVERY = 10
SLOWEST = 10.0  # seconds an answer may take before it counts as none
HEAD = b"POST /v1/labels HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def wrong_key():
    return (
        f"tlr_{''.join(secrets.choice('abcdefgh') for _ in range(12))}_{secrets.token_urlsafe(32)}".encode()
    )


# What each kind says at once, and what it says again every second.
KINDS = {
    "silent": (b"", b""),
    "drops": (b"GET / HTTP/1.1\r\nX: ", b"y"),
    "hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00"),
    "no body": (HEAD + b"Content-Length: 100\r\n\r\n", b""),
    "refused": (HEAD + b"Content-Length: 1000000000\r\n\r\n", b"x" * 1000),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"3e8\r\n" + b"x" * 1000 + b"\r\n"),
    "form": (
        b"POST /dashboard/sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: 16000\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n\r\n",
        b"x",
    ),
    "reads nothing": (b"GET /dashboard/static/vendor/htmx.min.js HTTP/1.1\r\nHost: x\r\n\r\n" * 8, b""),
    "idle": (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", b""),
    "pipeline": (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n" * 500,) * 2,
    "long head": (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000, b"a"),
    "garbage": (os.urandom(4096), os.urandom(16)),
    "wrong keys": (b"GET /v1/budget HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n", b""),
    "half-close": (b"GET /v1/budget HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n", b""),
}


async def stranger(port, kind, number):
    """Connect, say what the kind says, and hold on until the other side has had enough."""
    loop = asyncio.get_running_loop()
    at_once, again = KINDS[kind]
    with socket.socket() as line:
        line.setblocking(False)
        if kind == "reads nothing":
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.bind((f"127.0.0.{2 + number % N_ADDRESSES}", 0))
        with contextlib.suppress(OSError):
            await loop.sock_connect(line, ("127.0.0.1", port))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(loop.sock_sendall(line, at_once.replace(b"KEY", wrong_key())), 5)
            if kind == "half-close":
                line.shutdown(socket.SHUT_WR)
            while True:
                await asyncio.sleep(1)
                if again:
                    await loop.sock_sendall(line, again)
                if kind != "reads nothing":
                    with contextlib.suppress(BlockingIOError):
                        if not line.recv(65_536):
                            return


async def strangers(port, kinds, n, per_second, seconds):
    """Let `n` of each kind come, so many a second."""
    end, running = time.monotonic() + seconds, []
    for number in range(n * len(kinds)):
        running.append(asyncio.create_task(stranger(port, kinds[number % len(kinds)], number)))
        await asyncio.sleep(1 / per_second)
    await asyncio.sleep(max(0.0, end - time.monotonic()))
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "n": len(running)}))


async def exchange(reader, writer, request):
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    return int(head[9:12]), body


async def asker(port, key, every, end, times, failed):
    """Ask for one label each `every` seconds."""
    opened, n_asked, name = None, 0, secrets.token_hex(6)
    await asyncio.sleep(every * secrets.randbelow(1000) / 1000)
    while time.monotonic() < end:
        body = json.dumps({"idempotency_key": f"{name}/{n_asked}", "pool": [n_asked % 100]}).encode()
        request = HEAD + b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (key, len(body)) + body
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(SLOWEST):
                if opened is None:
                    opened = await asyncio.open_connection("127.0.0.1", port)
                status, said = await exchange(*opened, request)
            if status != 200:
                failed.append(f"{status} {said[:200]!r}")
        except Exception as error:
            failed.append(repr(error))
            opened = None
        times.append(time.perf_counter() - begun)
        n_asked += 1
        if opened is not None and n_asked % CHANGED_EVERY == 0:
            opened[1].close()
            opened = None
        await asyncio.sleep(max(0.0, every - (time.perf_counter() - begun)))


async def checker(port, end, times, failed):
    """Look every half second, with a connection of its own, whether the service is there."""
    while time.monotonic() < end:
        begun = time.perf_counter()
        try:
            async with asyncio.timeout(SLOWEST):
                opened = await asyncio.open_connection("127.0.0.1", port)
                status, _ = await exchange(*opened, b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
                opened[1].close()
            if status != 200:
                failed.append(str(status))
        except Exception as error:
            failed.append(repr(error))
        times.append(time.perf_counter() - begun)
        await asyncio.sleep(0.5)


async def askers(port, n, every, seconds):
    keys, end = sys.stdin.buffer.read().split(), time.monotonic() + seconds
    told = {"times": [], "failed": [], "health_times": [], "health_failed": []}
    working = [
        asker(port, keys[who % len(keys)], every, end, told["times"], told["failed"]) for who in range(n)
    ]
    await asyncio.gather(*working, checker(port, end, told["health_times"], told["health_failed"]))
    print(json.dumps(told))


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    role, port, *rest = sys.argv[1:]
    if role == "strangers":
        kinds = list(KINDS) if rest[0] == "all" else [rest[0]]
        asyncio.run(strangers(int(port), kinds, int(rest[1]), float(rest[2]), float(rest[3])))
    else:
        asyncio.run(askers(int(port), int(rest[0]), float(rest[1]), float(rest[2])))
