"""A ledger that was lost, exchanged or restored from too old a backup is not served."""

import shutil

import pytest
from starlette.testclient import TestClient

from tellers.errors import LedgerConflict
from tellers.privacy import Budget
from tellers.service import create_app
from tellers.service._ledger import account_name


def serve_once(place, **options):
    app = create_app(place.settings, log_stream=place.log, **options)
    with TestClient(app):
        app.state.service.labels.ledger.open_account(account_name(f"s{options}"), Budget(0.1, 1e-5))


def the_ledger(place):
    return place.settings.path(place.settings.ledger.url)


def test_the_same_ledger_is_served_again(place):
    serve_once(place)
    create_app(place.settings, log_stream=place.log).state.service.labels.close()


def test_a_lost_ledger_is_not_begun_anew(place):
    serve_once(place)
    for file in the_ledger(place).parent.glob(the_ledger(place).name + "*"):
        file.unlink()
    with pytest.raises(LedgerConflict, match="--trust-ledger"):
        create_app(place.settings, log_stream=place.log)


def test_a_backup_from_before_is_not_served_until_it_is_trusted(place, tmp_path):
    create_app(place.settings, log_stream=place.log).state.service.labels.close()
    shutil.copy(the_ledger(place), tmp_path / "backup.db")
    serve_once(place)
    for file in the_ledger(place).parent.glob(the_ledger(place).name + "*"):
        file.unlink()
    shutil.copy(tmp_path / "backup.db", the_ledger(place))
    with pytest.raises(LedgerConflict, match="spent again"):
        create_app(place.settings, log_stream=place.log)
    create_app(place.settings, log_stream=place.log, trust_ledger=True).state.service.labels.close()
    create_app(place.settings, log_stream=place.log).state.service.labels.close()
