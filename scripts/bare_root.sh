#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command in a fresh Debian 12 that has make, git and nothing else of ours: what a newcomer meets. The repository as
# it is committed is cloned to /dcuda there.
#
#   scripts/bare_root.sh COMMAND [ARGUMENT...]          for example: scripts/bare_root.sh make demo
#
# Needs root (it mounts and changes the root), debootstrap and the network. The root is kept as an archive in
# ${XDG_CACHE_HOME:-~/.cache}/dcuda-bare-root; each call unpacks it anew, into BARE_ROOT or a folder that goes away.
# Package sources and their settings are those of this machine. Ends as the command does; 77: not possible here.
set -euo pipefail
[ $# -gt 0 ] || { echo "Use: $0 COMMAND [ARGUMENT...]" >&2; exit 2; }
cd "$(dirname "$0")/.."
repository=$PWD
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "skipped: a bare root takes root's rights and debootstrap"
    exit 77
fi
if ! problem=$(unshare --mount --pid --fork true 2>&1); then
    echo "skipped: no namespaces for a bare root here: $problem"
    exit 77
fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dcuda-bare-root
archive=$cache/debian12.tar
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -nE 's/^(URIs:|deb) *(\[[^]]*\] *)?(https?:[^ ]+debian)( .*)?$/\3/p' | head -n 1) || true
mkdir -p "$cache"
if [ ! -e "$archive" ]; then
    building=$(mktemp -d "$cache/building.XXXXXX")
    debootstrap --variant=minbase --include=make,git,ca-certificates bookworm "$building" \
        "${mirror:-http://deb.debian.org/debian}" >"$cache/debootstrap.log" 2>&1 ||
        { tail -n 5 "$cache/debootstrap.log"; rm -rf "$building"; echo "skipped: debootstrap makes no root here"; exit 77; }
    rm -rf "$building"/var/cache/apt/archives/*.deb
    tar -C "$building" -cf "$archive.part" . && mv "$archive.part" "$archive"
    rm -rf "$building"
fi

root=${BARE_ROOT:-$(mktemp -d "${TMPDIR:-/tmp}/dcuda-bare-root.XXXXXX")}
trap '[ -n "${BARE_ROOT:-}" ] || rm -rf --one-file-system "$root"' EXIT
mkdir -p "$root"
[ -e "$root/usr" ] || tar -C "$root" -xf "$archive"
# How packages are reached from here.
cp -rL /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/auth.conf.d "$root/etc/apt/" 2>/dev/null || true
rm -f "$root"/etc/apt/apt.conf.d/docker-* "$root/etc/apt/sources.list"
cp /etc/apt/sources.list "$root/etc/apt/" 2>/dev/null || true
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -rL /usr/local/share/ca-certificates /etc/ssl "$root/tmp/" 2>/dev/null && cp -r "$root/tmp/ssl/certs" "$root/etc/ssl/" || true
[ -e "$root/dcuda" ] || git clone -q "$repository" "$root/dcuda"

# Namespaces of its own for mounts and processes: nothing stays mounted, nothing goes on running.
code=0
unshare --mount --pid --fork --kill-child bash -s "$root" "$@" <<'INSIDE' || code=$?
root=$1
shift
mount --make-rprivate /
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null || true
mount --bind -o ro /sys "$root/sys"
exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
    http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" \
    bash -c 'cd /dcuda && exec "$@"' bare_root "$@" </dev/null
INSIDE
exit $code
