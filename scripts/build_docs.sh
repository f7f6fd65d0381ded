#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the documentation's site in build/site; build/site/index.html is its first page.
#
#   scripts/build_docs.sh [--quiet]
#
# Fails if a public declaration has no comment, a link leads nowhere, or a page is in no menu. Needs doxygen, and Python
# with venv; MkDocs and its theme are installed in build/docs-venv, by pip as it is configured.
set -euo pipefail
cd "$(dirname "$0")/.."

quiet=
case "${1:-}" in
--quiet) quiet=--quiet ;;
'') ;;
*) echo "Use: $0 [--quiet]" >&2; exit 2 ;;
esac
if ! command -v doxygen >/dev/null || ! python3 -c "import ensurepip, venv" 2>/dev/null; then
    echo "build_docs.sh needs doxygen, and Python with venv (Debian, Ubuntu: doxygen, python3-venv)." >&2
    exit 1
fi

venv=build/docs-venv
if ! cmp -s docs/requirements.txt "$venv/requirements.txt"; then
    [ -n "$quiet" ] || echo "Installing MkDocs in $venv"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r docs/requirements.txt
    cp docs/requirements.txt "$venv/"
fi

rm -rf build/docs-api
mkdir -p build/docs-api
doxygen docs/Doxyfile
scripts/api_reference.py build/docs-api/xml build/docs-api/pages
# Material for MkDocs tells each build of what another product will bring.
# (MkDocs' own --quiet would also keep --strict from seeing warnings.)
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --clean >build/docs.log 2>&1 || { cat build/docs.log >&2; exit 1; }
[ -n "$quiet" ] || cat build/docs.log
echo "docs: build/site/index.html"
