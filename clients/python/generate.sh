#!/bin/sh
# Generates the Python code of the contract into skillrun/, with Debian's protoc
# and the plugin of protobuf-compiler-grpc. What it makes is committed.
set -eu
cd "$(dirname "$0")"
protoc --proto_path=../../proto --proto_path=proto \
	--python_out=. --pyi_out=. \
	skillrun/v1/execution.proto skillrun/v1/skill.proto skillrun/v1/system.proto skillrun/v1/tool.proto skillrun/details.proto
protoc --proto_path=../../proto \
	--grpc_out=. --plugin=protoc-gen-grpc="$(command -v grpc_python_plugin)" \
	skillrun/v1/execution.proto skillrun/v1/skill.proto skillrun/v1/system.proto skillrun/v1/tool.proto
