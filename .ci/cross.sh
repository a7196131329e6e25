#!/usr/bin/env bash
# Builds the client for the systems in PLATFORMS, or vets it if the first argument is vet.
#
#	cross.sh build DIRECTORY [GOFLAGS...]   DIRECTORY/skillrun-OS-ARCHITECTURE
#	cross.sh vet                            the tests too; one architecture of each system
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0
case $1 in
build)
	out=$2 && shift 2
	for platform in ${PLATFORMS:?}; do
		os=${platform%/*} arch=${platform#*/} suffix=
		[[ $os == windows ]] && suffix=.exe
		GOOS=$os GOARCH=$arch go build -trimpath -tags netgo,osusergo,grpcnotrace "$@" -o "$out/skillrun-$os-$arch$suffix" ./cmd/skillrun
	done
	;;
vet)
	for os in linux darwin windows; do
		GOOS=$os GOARCH=amd64 go vet ./cmd/skillrun ./clients/go
	done
	;;
esac
