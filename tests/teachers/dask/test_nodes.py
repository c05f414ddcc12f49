"""Two nodes that share nothing, and a cluster that asks everybody who they are."""

import datetime
import ipaddress
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from tellers.data import digits
from tellers.errors import ClusterFailed
from tellers.teachers import partition, train_ensemble
from tellers.teachers.dask import Cluster, Shard, connect, train_dask_ensemble, write_shard

DATA = digits()
X, Y, PUBLIC = DATA.X[:600], DATA.y[:600], DATA.X[600:700]
PARTS = partition(600, 6, seed=7)


class Nodes:
    """Two network namespaces on a bridge, each with folders that the other one does not see."""

    def __init__(self, folder):
        self.folder = Path(folder)
        # Not the same as any other run's on this machine, as far as a process number can tell.
        self.names = tuple(f"tellers-{place}-{os.getpid()}" for place in ("north", "south"))
        self.bridge, self.ends = f"tlb{os.getpid()}", tuple(f"tl{n}v{os.getpid()}" for n in range(2))
        self.net = f"10.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}"

    def __enter__(self):
        self.__exit__()
        shell("ip", "link", "add", self.bridge, "type", "bridge")
        shell("ip", "addr", "add", f"{self.net}.1/24", "dev", self.bridge)
        shell("ip", "link", "set", self.bridge, "up")
        for number, name in enumerate(self.names):
            shell("ip", "netns", "add", name)
            shell(
                "ip",
                "link",
                "add",
                self.ends[number],
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name,
            )
            shell("ip", "link", "set", self.ends[number], "master", self.bridge, "up")
            for words in (["addr", "add", f"{self.net}.{number + 2}/24", "dev", "eth0"],
                          ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):  # fmt: skip
                shell("ip", "-n", name, *words)
        return self

    def __exit__(self, *_):
        for number, name in enumerate(self.names):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", self.ends[number]], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)

    def inside(self, number, *, hidden, own):
        """Return what starts a command on a node: without the other's rows, with a store of its own."""
        mounts = [f'mount -t tmpfs none "{place}"' for place in (hidden, own)]
        script = " && ".join(["mount --make-rprivate /", *mounts, 'exec "$@"'])
        return ["ip", "netns", "exec", self.names[number], "unshare", "-m", "sh", "-c", script, "node"]


def shell(*words):
    subprocess.run(words, check=True, capture_output=True, timeout=30)


def can_make_nodes():
    """Say whether this machine lets us make network namespaces and hide folders in them."""
    if sys.platform != "linux" or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    tried = subprocess.run(
        ["sh", "-c", "ip netns add tellers-try-$$ && ip netns exec tellers-try-$$ unshare -m true; "
         "done=$?; ip netns del tellers-try-$$; exit $done"], capture_output=True, check=False,
    )  # fmt: skip
    return tried.returncode == 0


def split_rows(folder):
    """Give each of two nodes the shards of half of the teachers, in a folder of its own."""
    shards = []
    for number, part in enumerate(PARTS):
        place = ("north", "south")[number % 2]
        address = str(folder / place / f"part-{number}.npz")
        write_shard(address, X[part], Y[part])
        shards.append(Shard(address, at=place))
    return shards


@pytest.mark.campaign
def test_two_nodes_that_share_no_files(own_machines, tmp_path):
    shards = split_rows(tmp_path)
    store = tmp_path / "store"
    store.mkdir()
    right = train_ensemble(DecisionTreeClassifier(), X, Y, PARTS, n_classes=10, seed=7).vote(PUBLIC).ballots
    if not can_make_nodes():
        # Without namespaces: separate folders, and workers that are given only the shards of their place.
        machines = own_machines()
        machines.start_scheduler()
        for place in ("north", "south"):
            machines.start_worker(place, resources=f"{place}=1")
        check_two_nodes(machines, shards, store=store, right=right)
        return
    with Nodes(tmp_path) as nodes:
        machines = own_machines(host=f"{nodes.net}.1")
        machines.start_scheduler()
        for number, (place, other) in enumerate([("north", "south"), ("south", "north")]):
            machines.start_worker(
                place, resources=f"{place}=1",
                prefix=nodes.inside(number, hidden=tmp_path / other, own=store),
            )  # fmt: skip
        try:
            check_two_nodes(machines, shards, store=store, right=right)
        finally:
            machines.stop()
    # What the nodes kept, they kept where nobody else can look.
    assert list(store.iterdir()) == []


def check_two_nodes(machines, shards, *, store, right):
    with connect(Cluster(address=machines.address, timeout=120, patience=120)) as link:
        link.client.wait_for_workers(2, timeout=120)
        ensemble = train_dask_ensemble(
            DecisionTreeClassifier(), shards, n_classes=10, seed=7, link=link, store=store, batch=2
        )
        assert len(set(ensemble.near.values())) == 2
        assert (ensemble.vote(PUBLIC).ballots == right).all()


def certificates(folder):
    """Write an authority, and a certificate of it for everybody: PEM files."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder.mkdir()
    now = datetime.datetime.now(datetime.UTC)

    def made(name, signer, issuer, *, is_authority):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
        )
        certificate = builder.sign(signer or key, hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return key, subject

    key, subject = made("authority", None, None, is_authority=True)
    made("member", key, subject, is_authority=False)
    return {name: str(folder / file) for name, file in
            (("ca", "authority.pem"), ("certificate", "member.pem"), ("key", "member.key"))}  # fmt: skip


def test_a_cluster_with_certificates_lets_in_who_has_one_and_nobody_else(own_machines, tmp_path):
    files = certificates(tmp_path / "ours")
    words = ["--tls-ca-file", files["ca"], "--tls-cert", files["certificate"], "--tls-key", files["key"]]
    machines = own_machines(arguments=words, scheme="tls")
    machines.start_scheduler()
    machines.start_worker("one")
    shards = []
    for number, part in enumerate(PARTS):
        shards.append(Shard(str(tmp_path / f"part-{number}.npz")))
        write_shard(shards[-1].address, X[part], Y[part])
    with connect(Cluster(address=machines.address, timeout=120, **files)) as link:
        ensemble = train_dask_ensemble(
            DecisionTreeClassifier(), shards, n_classes=10, seed=7, link=link, store=tmp_path / "store"
        )
        votes = ensemble.vote(PUBLIC)
        assert np.asarray(votes.ballots).shape == (6, 100)
        assert link.client.scheduler.address.startswith("tls://")
        assert all(worker.startswith("tls://") for worker in link.workers())
    strangers = certificates(tmp_path / "theirs")
    plain = machines.address.replace("tls://", "tcp://")
    for refused in (
        Cluster(address=machines.address, timeout=3, **strangers),
        Cluster(address=plain, timeout=3),
    ):
        with pytest.raises(ClusterFailed, match="Expected a scheduler"), connect(refused):
            pass


def test_certificates_that_are_not_there_are_named(tmp_path):
    files = {"ca": str(tmp_path / "no.pem"), "certificate": "c.pem", "key": "k.pem"}
    with (
        pytest.raises(ClusterFailed, match=r"as ca at .*no.pem"),
        connect(Cluster(address="tls://127.0.0.1:9", timeout=1, **files)),
    ):
        pass
