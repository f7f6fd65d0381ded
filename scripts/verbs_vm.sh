#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command where there is an InfiniBand-like device: boots a throw-away virtual machine, Debian's kernel under
# QEMU's emulation, with a soft-RoCE device (rdma_rxe, named rxe0) and ends it with the command.
#
#   scripts/verbs_vm.sh setup          fetches and unpacks Debian's kernel (once; 70 MB, needs apt of Debian)
#   scripts/verbs_vm.sh run COMMAND    runs the command in the same folder; the exit status is its own, 77 if there is
#                                      no QEMU or setup did not run, 3 if the machine ended before the command
#
# The machine's files are this system's, read through 9p: what is built here runs there at the same path. What it
# writes is lost.
#
#   DCUDA_VM_DIR       where the kernel is kept (default: $XDG_CACHE_HOME/dcuda-verbs-vm)
#   DCUDA_VM_ACCEL     tcg (emulation, default) or kvm
#   DCUDA_VM_TIMEOUT   seconds before the machine is ended (default 170)
set -euo pipefail

dir=${DCUDA_VM_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/dcuda-verbs-vm}
packages=(qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 ibverbs-providers)
modules=(virtio_pci 9p 9pnet_virtio overlay dummy crc32_generic ib_uverbs rdma_rxe)

setup() {
    local program image folder trees=()
    for program in qemu-system-x86_64 busybox cpio depmod modprobe xz rdma apt-get; do
        command -v "$program" >/dev/null || { echo "verbs_vm.sh: needs $program: ${packages[*]}" >&2; exit 1; }
    done
    local made_by
    made_by=$(sha256sum <"$0")
    if [ "$(cat "$dir/made_by" 2>/dev/null)" = "$made_by" ]; then return; fi
    [ "$(id -u)" -ne 0 ] || apt-get update -qq
    image=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-[0-9]/ && !n++ {print $2}')
    [ -n "$image" ] || { echo "verbs_vm.sh: apt knows no linux-image-amd64, which Debian has" >&2; exit 1; }
    rm -rf "$dir"/{root,stage,made_by} "$dir"/*.deb
    mkdir -p "$dir/root"
    (cd "$dir" && apt-get -o APT::Sandbox::User=root download -qq "$image")
    for folder in drivers/infiniband drivers/virtio drivers/net/dummy.ko net/9p net/core net/ipv4 net/ipv6 fs/9p \
        fs/overlayfs fs/fscache fs/netfs fs/configfs crypto lib arch/x86/crypto; do
        trees+=("./lib/modules/*/kernel/$folder*")
    done
    dpkg-deb --fsys-tarfile "$dir/$image"_*.deb |
        tar -x -C "$dir/root" --wildcards './boot/vmlinuz-*' './lib/modules/*/modules.*' "${trees[@]}"
    # The compressed kernel would take an emulated processor a minute to unpack.
    local packed offset
    packed=$(ls "$dir"/root/boot/vmlinuz-*)
    offset=$(LC_ALL=C grep -obUaP '\xfd7zXZ\x00' "$packed" | awk -F: 'NR == 1 {print $1}')
    tail -c "+$((offset + 1))" "$packed" | xz -dc --single-stream >"$dir/vmlinux" 2>/dev/null || [ -s "$dir/vmlinux" ]
    make_initramfs
    rm -rf "$dir/root" "$dir"/*.deb
    echo "$made_by" >"$dir/made_by"
}

make_initramfs() {
    local version stage number=0 file
    version=$(ls "$dir/root/lib/modules")
    depmod -b "$dir/root" "$version" 2>/dev/null
    stage=$dir/stage
    mkdir -p "$stage"/{bin,modules,proc,sys,dev,host,up,root}
    cp "$(command -v busybox)" "$stage/bin/busybox"
    for file in $(for module in "${modules[@]}"; do
        modprobe -d "$dir/root" -S "$version" --ignore-install --show-depends "$module" 2>/dev/null
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}'); do
        number=$((number + 1))
        cp "$file" "$stage/modules/$(printf %03d $number)-$(basename "$file")"
    done
    cat >"$stage/init" <<'INIT'
#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc; $B mount -t sysfs sysfs /sys; $B mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do $B insmod "$module" || echo "verbs_vm.sh: cannot load $module"; done
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 host /host || $B poweroff -f
$B mount -t tmpfs tmpfs /up; $B mkdir /up/upper /up/work
$B mount -t overlay -o lowerdir=/host,upperdir=/up/upper,workdir=/up/work overlay /root || $B poweroff -f
$B mount -t proc proc /root/proc; $B mount -t sysfs sysfs /root/sys; $B mount -t devtmpfs devtmpfs /root/dev
$B mkdir -p /root/dev/shm /root/run/verbs_vm
$B mount -t tmpfs tmpfs /root/dev/shm
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 job /root/run/verbs_vm || $B poweroff -f
$B ip link set lo up
$B ip addr add 10.77.0.1/24 dev dummy0
$B ip link set dummy0 mtu 4200 up
$B chroot /root /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin rdma link add rxe0 type rxe netdev dummy0
$B chroot /root /bin/bash /run/verbs_vm/job.sh
echo $? >/root/run/verbs_vm/status
$B sync
$B poweroff -f
INIT
    chmod +x "$stage/init"
    (cd "$stage" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/initramfs.gz"
    rm -rf "$stage"
}

run() {
    if ! command -v qemu-system-x86_64 >/dev/null; then
        echo "skipped: qemu-system-x86_64 is not here (${packages[*]})"
        exit 77
    fi
    if [ ! -s "$dir/made_by" ]; then
        echo "skipped: no kernel in $dir; scripts/verbs_vm.sh setup fetches it"
        exit 77
    fi
    job=$(mktemp -d)
    trap 'rm -rf "$job"' EXIT
    {
        echo 'export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C TERM=dumb'
        echo 'ulimit -l unlimited'
        export -p | grep -E '^declare -x DCUDA_' || true
        printf 'cd %q\n' "$PWD"
        printf '%q ' "$@"
    } >"$job/job.sh"
    local accel=${DCUDA_VM_ACCEL:-tcg} cpu=host
    if [ "$accel" = tcg ]; then
        accel=tcg,thread=multi
        cpu=max
    fi
    timeout -k 5 "${DCUDA_VM_TIMEOUT:-170}" qemu-system-x86_64 -machine q35 -accel "$accel" -cpu "$cpu" -smp 2 -m 2048 \
        -nodefaults -no-user-config -display none -serial stdio -no-reboot \
        -kernel "$dir/vmlinux" -initrd "$dir/initramfs.gz" \
        -append "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr no_timer_check cryptomgr.notests" \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        -virtfs local,path="$job",mount_tag=job,security_model=none </dev/null || true
    if [ ! -s "$job/status" ]; then
        echo "verbs_vm.sh: the virtual machine ended before the command did (after ${DCUDA_VM_TIMEOUT:-170} s it is ended)"
        exit 3
    fi
    exit "$(cat "$job/status")"
}

case ${1:-} in
setup) setup ;;
run)
    shift
    run "$@"
    ;;
*)
    sed -n '3,16p' "$0"
    exit 2
    ;;
esac
