"""The file of a service: every mistake with its line, and what is written is read back."""

import pytest

from tellers.errors import ConfigError
from tellers.runs import MechanismConfig
from tellers.service import (
    LedgerConfig,
    ServedConfig,
    ServerConfig,
    ServiceSettings,
    parse_settings,
    read_settings,
    write_settings,
)


def test_a_file_with_many_mistakes_names_them_all():
    text = """\
[data]
source = "votes"
path = "votes.npz"

[ledger]
url = "ledger.db"
epsilon = -1
delta = 1e-5

[servre]
port = 1

[server]
host = "0.0.0.0"
port = "80"
tls_cert = "cert.pem"
"""
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, source="service.toml")
    told = caught.value.problems
    assert [line.split(" ")[0] for line in told] == [
        "service.toml:2:", "service.toml:2:", "service.toml:7:", "service.toml:10:", "service.toml:15:",
        "service.toml:16:",
    ]  # fmt: skip
    assert "n_classes" in told[0]
    assert "[mechanism]" in told[1]
    assert "Did you mean server?" in told[3]
    assert "without quotes" in told[4]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[server]\nhost = "0.0.0.0"\n', "Expected TLS"),
        ('[server]\ntls_key = "key.pem"\n', "tls_cert beside tls_key"),
        (
            '[data]\nsource = "teachers"\nn_classes = 3\n[ledger]\nurl="l"\nepsilon=1\ndelta=1e-5\n',
            "n_features",
        ),
        ('[ledger]\nurl = "ledger.db"\nepsilon = 1\n', "ledger.delta"),
        ("[ledger]\nepsilon = 1\n", "where the budget is the run's"),
        ('[mechanism]\nname = "gnmax"\n', "Expected sigma"),
        ("[data]\nn_labels = 3\n", "The run knows it"),
        ('[mechanism]\nname = "gnmax"\nsigma = 4\nthreshold = 3\n', "threshold too"),
        ("[limits]\nmax_batch = 0\n", "at least 1"),
        ("port = 80\n", "Move it below [server]"),
        ("data = 3\n", "Expected one section [data]"),
        ("[data\n", "Expected TOML"),
        ('[server]\nlog_level = "loud"\n', "Expected one of"),
    ],
)
def test_what_does_not_go_together(text, words):
    with pytest.raises(ConfigError) as caught:
        parse_settings(text)
    assert words in str(caught.value)


def test_another_host_behind_a_proxy_or_with_tls():
    assert (
        parse_settings('[server]\nhost = "0.0.0.0"\nplain_http = true\n').server.address
        == "http://0.0.0.0:8420"
    )
    with_tls = parse_settings('[server]\nhost = "::"\ntls_cert = "c.pem"\ntls_key = "k.pem"\n')
    assert with_tls.server.address == "https://[::]:8420"


@pytest.mark.parametrize(
    "settings",
    [
        ServiceSettings(),
        ServiceSettings(
            data=ServedConfig(source="teachers", path="teachers", n_classes=3, n_features=7),
            mechanism=MechanismConfig(name="confident", sigma=4.0, threshold=9.0, sigma_threshold=5.0),
            ledger=LedgerConfig(url="postgresql+psycopg://host/name", epsilon=1.5, delta=1e-6),
            server=ServerConfig(port=0, log_level="debug"),
        ),
    ],
)
def test_what_is_written_is_read_back(settings, tmp_path):
    (tmp_path / "service.toml").write_text(write_settings(settings))
    assert read_settings(tmp_path / "service.toml") == settings
    assert read_settings(tmp_path / "service.toml").path("x") == tmp_path / "x"


def test_databases_are_left_alone_and_files_are_found_beside_the_settings():
    settings = ServiceSettings(folder="/srv/labels")
    assert settings.place("postgresql+psycopg://host/name") == "postgresql+psycopg://host/name"
    assert settings.place("keys.db") == "/srv/labels/keys.db"


@pytest.mark.parametrize("what", ["missing", "junk", "passphrase", "not a pair"])
def test_tls_files_that_cannot_be_used_are_said_before_anything_is_opened(tmp_path, what):
    from tellers.service._server import serve

    if what != "missing":
        write_certificate(tmp_path / "cert.pem", tmp_path / "key.pem", secret=what == "passphrase")
    if what == "junk":
        (tmp_path / "cert.pem").write_text("junk")
    if what == "not a pair":
        write_certificate(tmp_path / "other.pem", tmp_path / "key.pem", secret=False)
    text = '[server]\ntls_cert = "cert.pem"\ntls_key = "key.pem"\n'
    with pytest.raises(ConfigError, match=r"s\.toml:2: server\.tls_cert: Expected a certificate"):
        serve(parse_settings(text, source="s.toml", folder=str(tmp_path)))
    assert not (tmp_path / "keys.db").exists()


def write_certificate(certificate, key, *, secret):
    x509 = pytest.importorskip("cryptography.x509")
    from datetime import UTC, datetime, timedelta

    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(private, hashes.SHA256())
    )
    hidden = serialization.BestAvailableEncryption(b"word") if secret else serialization.NoEncryption()
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    )


BATCH = "sigma = 4.0\nclear_cost = 1.0\ntest_sigma = 2.0\nheld_at = 8.0\ntest_delta = 1e-7\nn_queries = 9\n"


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        (f'name = "tested-gnmax"\n{BATCH}', "Expected a mechanism that answers one question at a time"),
        ('name = "gaussian-sum"\nsigma = 4.0\n', "Expected a mechanism that answers query by query"),
    ],
)
def test_a_mechanism_of_a_whole_batch_is_refused_with_its_reason_when_the_file_is_read(mechanism, words):
    text = f'[data]\nsource = "votes"\npath = "v.npz"\nn_classes = 3\n[mechanism]\n{mechanism}'
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, source="service.toml")
    told = [line for line in caught.value.problems if "mechanism.name" in line]
    assert len(told) == 1
    assert told[0].startswith("service.toml:6: ")
    assert words in told[0]
