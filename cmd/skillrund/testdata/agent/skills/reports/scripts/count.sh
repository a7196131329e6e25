#!/usr/bin/env bash
# Counts the words of a file.
set -euo pipefail
tr -cs '[:alpha:]' '\n' <"$1" | tr '[:upper:]' '[:lower:]' | sort | uniq -c | sort -k1,1nr -k2 | sed 's/^ *//'
