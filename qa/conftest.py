"""What the tests of these programs share with all tests."""

from tests.conftest import pytest_collection_finish, pytest_plugins

__all__ = ["pytest_collection_finish", "pytest_plugins"]
