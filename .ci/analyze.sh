#!/usr/bin/env bash
# Analyses the C code (package sandbox/internal/pid1) with gcc and cppcheck. gcc gets the flags of the
# build, and more warnings: some differ between versions of gcc, and others fail in code
# that cgo generates. A false finding is suppressed at its line, with the reason.
set -euo pipefail
cd "$(dirname "$0")/../sandbox/internal/pid1"

more=(-fanalyzer -Wmissing-prototypes -Wredundant-decls -Wnested-externs -Wlogical-op -Wduplicated-cond -Wduplicated-branches
	-Wnull-dereference -Wmissing-format-attribute -Warith-conversion -Wunused-macros -Walloca -Wtrampolines -Wstack-usage=40000)
for source in *.c; do
	tags=
	if [[ $source == fault* ]]; then tags=skillrun_faults; fi # no release build has it
	read -ra flags < <(go list -tags "$tags" -f '{{join .CgoCFLAGS " "}}' .)
	gcc "${flags[@]}" "${more[@]}" -c -o /dev/null "$source"
done
cppcheck --quiet --std=c11 --language=c --platform=unix64 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 ./*.c
