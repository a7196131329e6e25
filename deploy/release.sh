#!/usr/bin/env bash
# Builds the release into a directory: static, stripped binaries, the client for other systems, their bills
# of materials, the wheel of the Python client, and checksums. The same commit and toolchain give the same
# bytes on every machine; --check builds a second time in a fresh clone and compares.
set -euo pipefail
cd "$(dirname "$0")/.."

check=
if [[ ${1-} == --check ]]; then check=1 && shift; fi
out=${1:?usage: deploy/release.sh [--check] DIRECTORY}
mkdir -p "$out"
out=$(cd "$out" && pwd)

if [[ -n $(git status --porcelain) ]]; then
	echo "the tree has changes that are not committed: what is built would be no commit's" >&2
	exit 1
fi
version=$(git describe --tags --always)
tags=netgo,osusergo,sqlite_omit_load_extension,grpcnotrace
# The linker's build id would be of the path of the objects.
ldflags="-s -w -buildid= -X main.version=$version -linkmode external -extldflags \"-static -pthread -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--build-id=none\""

# The client for the machines that have no daemon: skillrun-OS-ARCHITECTURE.
platforms="linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64"

build() { # SOURCE OUT
	(cd "$1" && PLATFORMS=$platforms bash .ci/cross.sh build "$2" -buildvcs=false -ldflags "-s -w -buildid= -X main.version=$version")
	(cd "$1" && bash clients/python/wheel.sh "$2")
	(cd "$1" && CGO_ENABLED=1 go build -trimpath -buildvcs=false -tags "$tags" -ldflags "$ldflags" -o "$2/" ./cmd/skillrund ./cmd/skillrun ./cmd/skillrun-network ./cmd/skillrun-python)
}

echo "==> release $version in $out"
build . "$out"
libc=$(dpkg-query -W -f '${Version}' libc6-dev)
seccomp=$(dpkg-query -W -f '${Version}' libseccomp-dev)
sqlite=$(sed -n 's/^#define SQLITE_VERSION *"\(.*\)".*/\1/p' "$(go list -m -f '{{.Dir}}' github.com/mattn/go-sqlite3)/sqlite3-binding.h")
cpython=$(go list -m -f '{{.Version}}' github.com/kluctl/go-embed-python | sed -n 's/^v[0-9.]*-\([0-9.]*\)-.*/\1/p')
programs=(skillrund skillrun skillrun-network skillrun-python)
for platform in $platforms; do
	name=skillrun-${platform/\//-}
	[[ $platform != windows/* ]] || name+=.exe
	programs+=("$name")
done
for program in "${programs[@]}"; do
	# The linker does not record the libraries that cgo links in or that a module carries.
	linked=("libc6-dev@$libc")
	case $program in
	skillrun-*-*) linked=() ;; # without cgo
	skillrund) linked+=("libseccomp-dev@$seccomp" "sqlite@$sqlite") ;;
	skillrun-python) linked+=("cpython@$cpython") ;;
	esac
	(cd deploy/sbom && go run . "$out/$program" "$version" "${linked[@]}") >"$out/$program.cdx.json"
done
(cd "$out" && sha256sum "${programs[@]}" ./*.whl ./*.cdx.json | sed 's| \./| |' >SHA256SUMS && cat SHA256SUMS)

if [[ $check ]]; then
	again=$(mktemp -d /var/tmp/skillrun-release.XXXXXX)
	trap 'rm -rf "$again"' EXIT
	git clone -q . "$again/src"
	GOCACHE=$again/cache build "$again/src" "$again/out"
	for program in "${programs[@]}"; do
		cmp "$out/$program" "$again/out/$program"
	done
	for wheel in "$again"/out/*.whl; do
		cmp "$out/${wheel##*/}" "$wheel"
	done
	echo "==> built again elsewhere, from an empty cache: the same bytes"
fi
