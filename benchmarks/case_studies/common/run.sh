# SPDX-License-Identifier: BSD-3-Clause
# For the scripts that run a program as users do: $program, under $launcher. Every run compares its result with the serial
# reference to the last bit.
unset DCUDA_RANKS_PER_DEVICE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
runs=0

# Sanitizers see as much with few processes, and tests of devices have several there; ThreadSanitizer sees nothing across
# processes. It takes for a race what only a message by way of another process orders: where ranks read what others of their
# device receive, it gets $few processes.
case ${DCUDA_TEST_SANITIZER:-} in
"") usual=9 most=9 ;;
thread) usual=1 most=2 ;;
*) usual=1 most=4 ;;
esac
# On GPUs a process has one for itself, and fields in shared memory take 32 threads.
fewest_threads=1
if [ "${DCUDA_TEST_BACKEND:-}" = cuda ]; then
    usual=$("$(dirname "${BASH_SOURCE[0]}")/../../../scripts/gpus.sh" | wc -l)
    [ "$usual" -gt 0 ] || { echo "skipped: no GPU"; exit 77; }
    most=$usual fewest_threads=32
fi

# counts N...: the numbers of processes for a loop. On GPUs the largest alone, as each run takes seconds to begin there.
counts() {
    local count all
    mapfile -t all < <(for count in "$@"; do echo $((count < usual ? count : usual)); done | sort -nu)
    [ "${DCUDA_TEST_BACKEND:-}" != cuda ] || all=("${all[-1]}")
    printf '%s\n' "${all[@]}"
}

few=$(counts 2)

die() {
    echo "FAILED: $*"
    cat "$work/log"
    exit 1
}

# job PROCESSES OPTION...
job() {
    local processes=$1
    shift
    if [ "$processes" = 1 ]; then
        timeout 60 "$program" "$@"
    else
        timeout 60 "$launcher" -n "$processes" "$program" "$@"
    fi
}

verified() {
    [ "$1" -le $most ] || return 0
    job "$@" --verify >"$work/log" 2>&1 || die "status $?: $*"
    grep -q 'equal the serial reference to the last bit' "$work/log" || die "not verified: $*"
    runs=$((runs + 1))
}

# refused STATUS REASON PROCESSES OPTION...: ends by itself, with this status and an error that names the reason.
refused() {
    local expected=$1 reason=$2 status=0
    shift 2
    [ "$1" -le $most ] || return 0
    job "$@" >"$work/log" 2>&1 || status=$?
    [ $status = "$expected" ] || die "status $status, not $expected: $*"
    grep -q -- "$reason" "$work/log" || die "does not say '$reason': $*"
    runs=$((runs + 1))
}

# refused_once REASON PROCESSES OPTION...: process 0 tells the reason, in one line, and is the one that the launcher names.
refused_once() {
    local reason=$1 status=0
    shift
    [ "$1" -le $most ] || return 0
    job "$@" >"$work/log" 2>&1 || status=$?
    [ $status = 1 ] || die "status $status, not 1: $*"
    grep -v '^dcuda-run: process 0 ' "$work/log" | grep -q -- "$reason" || die "does not say '$reason': $*"
    [ "$(wc -l <"$work/log")" = $(($1 > 1 ? 2 : 1)) ] || die "says more than one line and the launcher's: $*"
    [ "$1" = 1 ] || grep -q '^dcuda-run: process 0 .* exited with code 1$' "$work/log" || die "names another process: $*"
    runs=$((runs + 1))
}
