"""One server for all tests, a database for each; helpers of the autograder's tests."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "autograder"
sys.path[:0] = [str(TESTS), str(TESTS / "nbgrader")]


@pytest.fixture(scope="session")
def server():
    from postgres_server import server

    with server() as running:
        yield running


@pytest.fixture
def url(server):
    return server.new_database()
