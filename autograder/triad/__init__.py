"""Tests of the tests: right, differently right and wrong solutions."""
