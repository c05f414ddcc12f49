"""No key, token or password lies in the repository, in whatever kind of file."""

import base64
import re
import secrets
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = {".git", ".venv", "_build", "build", "dist", "generated", "__pycache__"}

# Of full length each, so that a word about a token is not taken for one.
SECRETS = {
    "a private key": rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----",
    "a key of this service": rb"tlr_[a-z2-7]{12}_[A-Za-z0-9_-]{43}",
    "an argon2 hash": rb"\$argon2id?\$v=\d+\$[^$\s]+\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{22,}",
    "a JSON web token": rb"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "a key of a cloud": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{35}\b",
    "a token of a forge": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{22}|glpat-[A-Za-z0-9_-]{20})",
    "a token of a registry": rb"\bpypi-[A-Za-z0-9_-]{50,}|\bnpm_[A-Za-z0-9]{36}|\bhf_[A-Za-z]{34}\b",
    "a token of a chat": rb"\bxox[abprs]-[A-Za-z0-9-]{20,}",
    # Not {password}, nor the words that documents put in its place.
    "a password in an address": rb"[a-z+]+://[^/\s:@\"'{}<>]+:(?!pass|\.\.\.|\*|[^@\s]*secret)[^/\s:@\"'{}<>]{4,}@(?!db\.example)",
}  # fmt: skip


def files():
    """Return every file that git knows or would add, or all outside build folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout.split("\0")  # fmt: skip
        paths = [ROOT / line for line in listed if line]
    except (OSError, subprocess.CalledProcessError):
        paths = [p for p in ROOT.rglob("*") if not SKIPPED & set(p.relative_to(ROOT).parts)]
    return sorted(path for path in paths if path.is_file())


def found_in(text):
    return {what for what, pattern in SECRETS.items() if re.search(pattern, text)}


def test_no_secret_lies_in_the_repository():
    found = {str(path.relative_to(ROOT)): found_in(path.read_bytes()) for path in files()}
    assert len(found) > 100
    assert not {path: what for path, what in found.items() if what}


def planted():
    """Return one made-up secret of each kind; written here they would be found."""
    word = secrets.token_hex(32)
    return {
        "a private key": "-----BEGIN EC " + "PRIVATE KEY-----",
        "a key of this service": f"tlr_{'a' * 12}_{secrets.token_urlsafe(32)}",
        "an argon2 hash": "$argon2id" + f"$v=19$m=65536,t=3,p=4${word[:22]}${word[:43]}",
        "a JSON web token": ".".join(
            base64.urlsafe_b64encode(part).decode().rstrip("=")
            for part in (b'{"alg":"HS256"}', b'{"sub":"alice"}', word.encode())
        ),
        "a key of a cloud": "AKIA" + word[:16].upper(),
        "a token of a forge": "ghp" + "_" + word[:36],
        "a token of a registry": "pypi" + "-" + word,
        "a token of a chat": "xoxb" + "-" + word[:24],
        "a password in an address": "postgresql://team" + f":{word[:8]}@db.hospital.org/privacy",
    }


@pytest.mark.parametrize("what", sorted(SECRETS))
def test_a_planted_secret_is_found(what):
    assert found_in(f'x = "{planted()[what]}"\n'.encode()) == {what}
