#!/usr/bin/env bash
# Checks that every source file is formatted as .clang-format says. --fix formats them.
set -euo pipefail
cd "$(dirname "$0")/.."

# Other versions format differently. Debian 12 has 14.
clang_format=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$clang_format" ] || ! "$clang_format" --version | grep -q 'version 14\.'; then
    echo "check_format.sh needs clang-format 14 (Debian 12: clang-format; Ubuntu: clang-format-14)." >&2
    exit 1
fi

mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.h')
existing=()
for file in "${files[@]}"; do
    [ -e "$file" ] && existing+=("$file")
done
if [ "${1:-}" = --fix ]; then
    "$clang_format" -i "${existing[@]}"
else
    "$clang_format" --dry-run --Werror "${existing[@]}"
    echo "format: ${#existing[@]} files are fine"
fi
