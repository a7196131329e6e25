#!/usr/bin/env bash
# Analyses the C code of package sandbox: by gcc, with the flags that it is compiled with
# and with warnings that differ between versions of gcc or that code of cgo's doesn't
# pass, and by cppcheck. A finding that is none is suppressed where it stands, with why.
set -euo pipefail
cd "$(dirname "$0")/../sandbox"

more=(-fanalyzer -Wmissing-prototypes -Wredundant-decls -Wnested-externs -Wlogical-op -Wduplicated-cond -Wduplicated-branches
	-Wnull-dereference -Wmissing-format-attribute -Warith-conversion -Wunused-macros -Walloca -Wtrampolines -Wstack-usage=40000)
for source in *.c; do
	tags=
	if [[ $source == fault* ]]; then tags=skillrun_faults; fi # nothing of it ships
	read -ra flags < <(go list -tags "$tags" -f '{{join .CgoCFLAGS " "}}' .)
	gcc "${flags[@]}" "${more[@]}" -c -o /dev/null "$source"
done
cppcheck --quiet --std=c11 --language=c --platform=unix64 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 ./*.c
