#!/bin/sh
# Generates the Python code of the API into skillrun/, with Debian's protoc and the plugin
# of protobuf-compiler-grpc. The generated files are committed.
set -eu
cd "$(dirname "$0")"
files=$(cd ../../proto && ls skillrun/v1/*.proto)
# shellcheck disable=SC2086 # file names without blanks
protoc --proto_path=../../proto --proto_path=proto --python_out=. --pyi_out=. $files skillrun/details.proto
# shellcheck disable=SC2086
protoc --proto_path=../../proto --grpc_out=. --plugin=protoc-gen-grpc="$(command -v grpc_python_plugin)" $files
