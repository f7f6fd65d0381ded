# For the scripts of this folder, after run.sh.

# refused STATUS REASON PROCESSES OPTION...: ends by itself, with this status and an error that names the reason.
refused() {
    local expected=$1 reason=$2 status=0
    shift 2
    job "$@" >"$work/log" 2>&1 || status=$?
    [ $status = "$expected" ] || die "status $status, not $expected: $*"
    grep -q -- "$reason" "$work/log" || die "does not say '$reason': $*"
    runs=$((runs + 1))
}

# matrix NAME LINE...: writes a file.
matrix() {
    local name=$1
    shift
    printf '%s\n' "$@" >"$work/$name.mtx"
}
