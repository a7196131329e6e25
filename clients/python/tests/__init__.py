"""Tests of the client. test_daemon and test_restart need a daemon: the Go tests of
cmd/skillrund start one and run all tests with python3 -m tests."""
