#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks that every source file is formatted as .clang-format says and names the licence. --fix formats them.
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

mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.h' '*.py' '*.sh' \
    '*.cmake' '*CMakeLists.txt')
without=()
for file in "${files[@]}"; do
    [ ! -e "$file" ] || head -n 2 "$file" | grep -q 'SPDX-License-Identifier: BSD-3-Clause$' || without+=("$file")
done
if [ ${#without[@]} -gt 0 ]; then
    printf '%s: no line "SPDX-License-Identifier: BSD-3-Clause" at its begin\n' "${without[@]}" >&2
    exit 1
fi
echo "licence: ${#files[@]} files name it"
