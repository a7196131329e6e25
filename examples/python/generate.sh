#!/bin/sh
# Generates the Python code of the contract into ./generated (or $1), with
# Debian's protoc and the plugin of protobuf-compiler-grpc.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/generated}
mkdir -p "$out"
protoc --proto_path="$here/../../proto" \
	--python_out="$out" --grpc_out="$out" \
	--plugin=protoc-gen-grpc="$(command -v grpc_python_plugin)" \
	skillrun/v1/execution.proto skillrun/v1/skill.proto skillrun/v1/system.proto
