#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fills .deps/ with the third-party libraries, from Debian's packages, without root. The build finds them there: for
# machines where nothing can be installed, or that have no network and get a copy of this directory. It holds what the
# cuda backend needs; the cpu backend needs Boost.Context from the system besides.
#
#   scripts/fetch_dependencies.sh
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(libfmt-dev libcli11-dev nlohmann-json3-dev googletest libpng-dev zlib1g-dev libsodium-dev libpmix-dev)

if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
    echo "This needs apt-get and dpkg. Run it on Debian or Ubuntu and copy .deps/ here." >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/packages" "$work/root"
(cd "$work/packages" && apt-get -qq download "${packages[@]}") || {
    echo "apt-get could not download the packages. Is the list of packages there (apt-get update)?" >&2
    exit 1
}
for package in "$work"/packages/*.deb; do
    dpkg -x "$package" "$work/root"
done
# Only what a build reads, and only archives to link with: a shared library here would not be found at run time.
rm -rf .deps
mkdir -p .deps/usr
for part in include lib src; do
    mv "$work/root/usr/$part" .deps/usr/
done
rm -rf .deps/usr/lib/*/cmake .deps/usr/lib/*/pkgconfig .deps/usr/src/googletest/*/{test,samples,docs}
find .deps/usr/lib -name '*.so*' -delete
echo ".deps: $(du -sh .deps | cut -f 1), from ${packages[*]}"
