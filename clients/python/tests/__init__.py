"""Tests of the client. Those in test_daemon and test_restart need a daemon; the Go
tests of cmd/skillrund start it and run everything: python3 -m tests."""
